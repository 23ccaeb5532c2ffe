-- A gateway takes a session, or takes it again. The session is not stamped: it keeps its history, or gets the present
-- history if it is new.
-- KEYS m p gateways n sessions
-- ARGV expected token ('' = none), history, sequence and last id of p ('' = none),
--      owner ('' = its entry is not compared) and its entry ('' = it has none), new token, history, epoch, terms,
--      format, counter, name ('' = a configured session) and incarnation of a session that a client has created
-- Returns OK, CHANGED, ALIVE, or REMOVED if the session is not defined.
redis.call('DEL', KEYS[1] .. ':none') -- see heartbeat
local v = redis.call('HMGET', KEYS[1], 'token', 'history', 'sequence')
if (v[1] or '') ~= ARGV[1] or (v[2] or '') ~= ARGV[2] or (v[3] or '0') ~= ARGV[3] then return 'CHANGED' end
local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
if (last and last[1] or '') ~= ARGV[4] then return 'CHANGED' end -- the new term begins after the last entry
if ARGV[5] ~= '' and (redis.call('HGET', KEYS[3], ARGV[5]) or '') ~= ARGV[6] then return 'ALIVE' end
if ARGV[13] ~= '' and string.sub(redis.call('HGET', KEYS[5], ARGV[13]) or '', 1, 16) ~= ARGV[14] then return 'REMOVED' end
redis.call('HSET', KEYS[1], 'token', ARGV[7], 'history', ARGV[8], 'sequence', ARGV[3], 'epoch', ARGV[9], 'terms', ARGV[10],
  'format', ARGV[11], 'counter', ARGV[12], 'successor', '')
redis.call('PUBLISH', KEYS[4], '2')
return 'OK'
