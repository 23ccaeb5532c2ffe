-- The holder releases a session, and names the gateway that shall take it.
-- KEYS m n
-- ARGV token, history, expected sequence, successor ('' = none)
-- Returns OK, FENCED, HISTORY or BEHIND.
redis.call('DEL', KEYS[1] .. ':none') -- see heartbeat
local v = redis.call('HMGET', KEYS[1], 'token', 'history', 'sequence')
if v[1] ~= ARGV[1] then return 'FENCED' end
if v[2] ~= ARGV[2] then return 'HISTORY' end
if v[3] ~= ARGV[3] then return 'BEHIND' end
redis.call('HSET', KEYS[1], 'token', '', 'gateway', '', 'successor', ARGV[4])
redis.call('PUBLISH', KEYS[2], '2')
return 'OK'
