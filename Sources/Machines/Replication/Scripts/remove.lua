-- Removes a session that a client has created, because a client has deleted the session, or the session was idle.
-- KEYS sessions owners removed sessions:n m p c c:new
-- ARGV name, definition, owner, token of the holder ('' = not compared), close code, number of removed incarnations
--      that are kept
-- Its first write frees memory, so it also works at 'maxmemory'.
-- Returns OK and the version of the list, CHANGED and the definition ('' = none), or FENCED.
local present = redis.call('HGET', KEYS[1], ARGV[1]) or ''
-- Only the incarnation counts: the definition of another version of the gateway may have further members.
if string.sub(present, 1, 16) ~= string.sub(ARGV[2], 1, 16) then return {'CHANGED', present} end
if ARGV[4] ~= '' and redis.call('HGET', KEYS[5], 'token') ~= ARGV[4] then return {'FENCED'} end
local id, count = string.match(redis.call('HGET', KEYS[1], ''), '^(%x+) (%d+)$')
count = count + 1
local version = id .. ' ' .. string.format('%d', count)
redis.call('UNLINK', KEYS[5], KEYS[6], KEYS[7], KEYS[8])
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HSET', KEYS[1], '', version)
if redis.call('HINCRBY', KEYS[2], ARGV[3], -1) < 1 then redis.call('HDEL', KEYS[2], ARGV[3]) end
redis.call('ZADD', KEYS[3], count, string.sub(ARGV[2], 1, 16))
redis.call('ZREMRANGEBYRANK', KEYS[3], 0, -1 - tonumber(ARGV[6]))
redis.call('PUBLISH', KEYS[4], version .. ' ' .. ARGV[1] .. ' -' .. ARGV[5] .. ' ' .. string.sub(ARGV[2], 1, 16))
return {'OK', version}
