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
local info = redis.call('INFO', 'server', 'replication')
local incarnation = string.match(info, 'run_id:(%x+)') .. ':' .. string.match(info, 'master_replid:(%x+)')

local answer = {}
local k, a = 1, 4
while k <= #KEYS do
  local n, config, leases = tonumber(ARGV[a]), ARGV[a + 1], tonumber(ARGV[a + 2])
  local state, waiting = KEYS[k], KEYS[k + 1]
  local known = redis.call('HMGET', state, 'incarnation', 'quarantine_until')
  local left = math.min(tonumber(known[2] or 0) - now, quarantine)
  if known[1] ~= incarnation then
    left = quarantine
    redis.call('HSET', state, 'incarnation', incarnation, 'quarantine_until', now + quarantine)
  end

  local results, fields = {}, {}
  a = a + 3
  for i = 1, leases do
    local slot, class, value = ARGV[a], ARGV[a + 1], ARGV[a + 2]
    local key = KEYS[k + 1 + tonumber(slot)]
    local holder = redis.call('GET', key)
    -- Grace: while a quarantine lives nobody else can own the slot, so a holder may
    -- put its own key back. At any other time a missing key is a lost lease.
    if holder == value or (not holder and left > 0) then
      if holder then
        redis.call('PEXPIRE', key, ttl)
      else
        redis.call('SET', key, value, 'PX', ttl)
      end
      fields[#fields + 1] = 'until:' .. slot
      fields[#fields + 1] = now + ttl
      fields[#fields + 1] = 'class:' .. slot
      fields[#fields + 1] = class
      results[i] = 1
    else
      results[i] = 0
    end
    a = a + 3
  end
  if #fields > 0 then
    redis.call('HSET', state, 'config', config, 'config_until', now + longest, unpack(fields))
  end

  local marks, values = redis.call('ZRANGEBYSCORE', waiting, '(' .. now, now + 5000), {}
  if #marks > 0 then
    for i, v in ipairs(redis.call('MGET', unpack(KEYS, k + 2, k + 1 + n))) do values[i] = v or '' end
  end
  answer[#answer + 1] = {math.max(left, 0), incarnation, marks, values, results}
  k = k + 2 + n
end
return answer
