#!lua
-- Frees the slots that hold exactly this value: the bank has nothing in progress.
-- KEYS: state hash, waiting marks, slots   ARGV: value, number of each slot
local freed = 0
for i = 3, #KEYS do
  if redis.call('GET', KEYS[i]) == ARGV[1] then
    redis.call('DEL', KEYS[i])
    redis.call('HDEL', KEYS[1], 'until:' .. ARGV[i - 1])
    freed = freed + 1
  end
end
-- A hint for those who wait; they poll anyway.
if freed > 0 and redis.call('EXISTS', KEYS[2]) == 1 then
  redis.call('PUBLISH', KEYS[1], 'free')
end
return freed
