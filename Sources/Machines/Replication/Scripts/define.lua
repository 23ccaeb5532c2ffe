-- A client creates a session, or its holder defines it again because Redis has lost the definition.
-- KEYS sessions owners removed sessions:n m
-- ARGV name, definition (it begins with the 16 digits of its incarnation), owner, maximum number of all sessions
--      ('' = no maximum) and of the sessions of an owner, gateway that acquires the session first ('' = any), id of
--      the list if there is no list
-- Returns OK and the version of the list, EXISTS with the definition and the version, REMOVED, TOTAL or OWNER.
local version = redis.call('HGET', KEYS[1], '') or (ARGV[7] .. ' 0')
local present = redis.call('HGET', KEYS[1], ARGV[1])
if present == ARGV[2] then return {'OK', version} end
if present then return {'EXISTS', present, version} end
if redis.call('ZSCORE', KEYS[3], string.sub(ARGV[2], 1, 16)) then return {'REMOVED'} end
if ARGV[4] ~= '' then
  if tonumber(redis.call('HGET', KEYS[2], ARGV[3]) or 0) >= tonumber(ARGV[5]) then return {'OWNER'} end
  if redis.call('HLEN', KEYS[1]) > tonumber(ARGV[4]) then return {'TOTAL'} end -- one field is the version
end
local id, count = string.match(version, '^(%x+) (%d+)$')
version = id .. ' ' .. string.format('%d', count + 1)
redis.call('HSET', KEYS[1], '', version, ARGV[1], ARGV[2])
redis.call('HINCRBY', KEYS[2], ARGV[3], 1)
if ARGV[6] ~= '' then redis.call('HSET', KEYS[5], 'successor', ARGV[6]) end
redis.call('PUBLISH', KEYS[4], version .. ' ' .. ARGV[1] .. ' +' .. ARGV[2])
return {'OK', version}
