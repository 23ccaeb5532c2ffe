-- The holder writes a part of a state. The state replaces the stored state when it is complete.
-- KEYS m c:new
-- ARGV token, history, sequence of the write, number of this part from 1, entries
-- The id of an entry consists of the sequence and the number of the part. So no part of an earlier attempt is taken
-- for a part of this attempt.
-- Returns OK, FENCED, HISTORY, or PART if another part is expected.
local v = redis.call('HMGET', KEYS[1], 'token', 'history')
if v[1] ~= ARGV[1] then return 'FENCED' end
if v[2] ~= ARGV[2] then return 'HISTORY' end
if ARGV[4] == '1' then
  redis.call('DEL', KEYS[2])
else
  local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
  if not last or last[1] ~= ARGV[3] .. '-' .. string.format('%d', tonumber(ARGV[4]) - 1) then return 'PART' end
end
redis.call('XADD', KEYS[2], ARGV[3] .. '-' .. ARGV[4], 'b', ARGV[5])
return 'OK'
