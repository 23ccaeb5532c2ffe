-- The holder replaces the stored state with the staged state. Its first write frees memory, so it also works at
-- 'maxmemory'.
-- KEYS m c c:new
-- ARGV token, history, expected sequence, sequence of this write, number of parts
-- Returns OK, FENCED, HISTORY, BEHIND and the sequence, or PART if the staged state is not complete.
local v = redis.call('HMGET', KEYS[1], 'token', 'history', 'sequence')
if v[1] ~= ARGV[1] then return {'FENCED'} end
if v[2] ~= ARGV[2] then return {'HISTORY'} end
if v[3] ~= ARGV[3] then return {'BEHIND', v[3]} end
local last = redis.call('XREVRANGE', KEYS[3], '+', '-', 'COUNT', 1)[1]
if not last or last[1] ~= ARGV[4] .. '-' .. ARGV[5] then return {'PART'} end
redis.call('RENAME', KEYS[3], KEYS[2])
redis.call('HSET', KEYS[1], 'sequence', ARGV[4])
return {'OK'}
