-- The holder appends a batch of journal entries.
-- KEYS m p c n
-- ARGV token, history, expected sequence, sequence of this write (the expected sequence if the batch has only pushes
--      that precede a 'replace'), first push to keep ('' = all),
--      entries for c ('' = none), then for p: id, entries, id, entries, ...
-- The id of an entry of c is the sequence of its write.
-- Returns OK, FENCED, HISTORY, BEHIND and the sequence, or ORDER if an id does not follow the last id.
local v = redis.call('HMGET', KEYS[1], 'token', 'history', 'sequence')
if v[1] ~= ARGV[1] then return {'FENCED'} end
if v[2] ~= ARGV[2] then return {'HISTORY'} end
if v[3] ~= ARGV[3] then return {'BEHIND', v[3]} end
-- All ids that XADD could refuse are checked before the first write. The parts of an id have at most 15 digits, which
-- a number of Lua can represent.
if ARGV[6] ~= '' and tonumber(ARGV[4]) <= tonumber(ARGV[3]) then return {'ORDER'} end
local number, count = -1, -1
if #ARGV > 6 then
  local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
  if last then
    local n, s = string.match(last[1], '^(%d+)-(%d+)$')
    number, count = tonumber(n), tonumber(s)
  end
  for i = 7, #ARGV, 2 do
    local n, s = string.match(ARGV[i], '^(%d+)-(%d+)$')
    n, s = tonumber(n), tonumber(s)
    if not n or not ARGV[i + 1] or n < number or (n == number and s <= count) or (n == 0 and s == 0) then return {'ORDER'} end
    number, count = n, s
  end
end
redis.call('HSET', KEYS[1], 'sequence', ARGV[4])
if ARGV[6] ~= '' then redis.call('XADD', KEYS[3], ARGV[4] .. '-0', 'b', ARGV[6]) end
for i = 7, #ARGV, 2 do redis.call('XADD', KEYS[2], ARGV[i], 'b', ARGV[i + 1]) end
if ARGV[5] ~= '' then redis.call('XTRIM', KEYS[2], 'MINID', '~', ARGV[5]) end
if #ARGV > 6 then redis.call('PUBLISH', KEYS[4], '1') end
return {'OK'}
