-- The holder has found its session complete: it continues in another history.
-- KEYS m n
-- ARGV token, history that is expected, history, sequence that is expected, counter
-- Returns OK, FENCED, HISTORY or BEHIND.
redis.call('DEL', KEYS[1] .. ':none') -- see heartbeat
local v = redis.call('HMGET', KEYS[1], 'token', 'history', 'sequence')
if v[1] ~= ARGV[1] then return 'FENCED' end
if v[2] ~= ARGV[2] then return 'HISTORY' end
if v[3] ~= ARGV[4] then return 'BEHIND' end
redis.call('HSET', KEYS[1], 'history', ARGV[3], 'counter', ARGV[5])
redis.call('PUBLISH', KEYS[2], '2')
return 'OK'
