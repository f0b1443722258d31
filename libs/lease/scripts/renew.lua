#!lua
-- Renews everything one replica holds, in one call. Per set:
-- KEYS: state hash, waiting marks, slot 1 .. slot N
-- ARGV: N, config record, count, then per lease: slot, class, value
-- before all: ttl, longest, quarantine
-- Per set the answer holds: quarantine left, incarnation, waiting marks, slot values
-- (only when somebody waits), and per lease 1 renewed or 0 lost.
local ttl, longest, quarantine = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local info = redis.call('INFO', 'replication')
if not string.find(info, 'role:master', 1, true) then return redis.error_reply('READONLY a replica renews nothing') end
local incarnation = string.match(info, 'master_replid:(%x+)')

local answer = {}
local k, a = 1, 4
while k <= #KEYS do
  local n, config, leases = tonumber(ARGV[a]), ARGV[a + 1], tonumber(ARGV[a + 2])
  local state, waiting = KEYS[k], KEYS[k + 1]
  local known = redis.call('HMGET', state, 'incarnation', 'quarantine_until', 'config', 'config_until')
  local left = math.min(tonumber(known[2] or 0) - now, quarantine)
  if known[1] ~= incarnation then
    left = quarantine
    redis.call('HSET', state, 'incarnation', incarnation, 'quarantine_until', now + quarantine)
  end

  -- Grace: while a quarantine lives nobody else can own the slot, so a holder may put its
  -- own key back. At any other time a missing key is a lost lease. So it is while others
  -- with another config hold the set: a renewal that hung in the network comes too late.
  local grace = left > 0 and not (tonumber(known[4] or 0) > now and known[3] ~= config)

  local results, values = {}, redis.call('MGET', unpack(KEYS, k + 2, k + 1 + n))
  local fields = {'config', config, 'config_until', now + longest}
  a = a + 3
  for i = 1, leases do
    local slot, class, value = tonumber(ARGV[a]), ARGV[a + 1], ARGV[a + 2]
    local key, holder = KEYS[k + 1 + slot], values[slot]
    results[i] = 1
    if holder == value then
      redis.call('PEXPIRE', key, ttl)
    elseif not holder and grace then
      redis.call('SET', key, value, 'PX', ttl)
      redis.call('HSET', state, 'class:' .. slot, class)
    else
      results[i] = 0
    end
    if results[i] == 1 then
      fields[#fields + 1] = 'until:' .. slot
      fields[#fields + 1] = now + ttl
    end
    a = a + 3
  end
  if #fields > 4 then redis.call('HSET', state, unpack(fields)) end

  -- Who holds what is asked only where somebody waits.
  local marks, holders = redis.call('ZRANGEBYSCORE', waiting, '(' .. now, now + 5000), {}
  if #marks > 0 then
    for i = 1, n do holders[i] = values[i] or '' end
  end
  answer[#answer + 1] = {math.max(left, 0), incarnation, marks, holders, results}
  k = k + 2 + n
end
return answer
