-- The holder has found its session complete, and stamps it with the present history.
-- KEYS m n
-- ARGV token, expected history, history, expected sequence, counter
-- Returns OK, FENCED, HISTORY or BEHIND.
redis.call('DEL', KEYS[1] .. ':none') -- see heartbeat
local v = redis.call('HMGET', KEYS[1], 'token', 'history', 'sequence')
if v[1] ~= ARGV[1] then return 'FENCED' end
if v[2] ~= ARGV[2] then return 'HISTORY' end
if v[3] ~= ARGV[4] then return 'BEHIND' end
redis.call('HSET', KEYS[1], 'history', ARGV[3], 'counter', ARGV[5])
redis.call('PUBLISH', KEYS[2], '2')
return 'OK'
