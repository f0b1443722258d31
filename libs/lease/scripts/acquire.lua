#!lua
-- Grants one slot of a set, or says why not. All time is the server's.
-- KEYS: state hash, waiting marks, slot 1 .. slot N
-- ARGV: value, class, replica, config record, ttl, longest, quarantine, mark (0: do not wait),
--       own slots, shared slots: a digit each, in the order in which to try them;
--       then what this replica gave back before, per slot its number and value
-- Returns the slot's number, or {reason, detail}.
local state, waiting, n = KEYS[1], KEYS[2], #KEYS - 2
local class, replica, config = ARGV[2], ARGV[3], ARGV[4]
local longest, own, shared = tonumber(ARGV[6]), ARGV[9], ARGV[10]

-- What was given back is free whatever the answer is.
local waited = redis.call('EXISTS', waiting) == 1
for i = 11, #ARGV, 2 do
  local key = KEYS[2 + ARGV[i]]
  if redis.call('GET', key) == ARGV[i + 1] then
    redis.call('DEL', key)
    redis.call('HDEL', state, 'until:' .. ARGV[i])
    if waited then redis.call('PUBLISH', state, 'free') end
  end
end

-- The slot that is tried first is read with the rest: mostly it is free.
local first = string.sub(own .. shared, 1, 1)
local known = redis.call('HMGET', state, 'incarnation', 'quarantine_until', 'config', 'config_until',
  'until:' .. first, 'class:' .. first)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- The incarnation is master_replid, 40 digits: a master has a new one after every start and
-- every promotion. State was lost, or this is another server, if it is not what INFO says:
-- then nobody is granted anything for Q. A replica has its master's and decides nothing.
local was, info = known[1], redis.call('INFO', 'replication')
if not string.find(info, 'role:master', 1, true) then return redis.error_reply('READONLY a replica grants nothing') end
if not (was and #was == 40 and string.find(info, 'master_replid:' .. was, 1, true)) then
  redis.call('HSET', state, 'incarnation', string.match(info, 'master_replid:(%x+)'), 'quarantine_until', now + ARGV[7])
  return {'quarantined', tonumber(ARGV[7])}
end

-- Returns a stored time, cut to now + most where the clock stepped back, so that nothing
-- outlives the longest lease, or the quarantine, by the size of the step.
local function cut(field, stored, most)
  local at = tonumber(stored or 0)
  if at > now + most then
    at = now + most
    redis.call('HSET', state, field, at)
  end
  return at
end

local q = cut('quarantine_until', known[2], tonumber(ARGV[7]))
if q > now then return {'quarantined', q - now} end

-- Another version with other numbers holds the set.
if cut('config_until', known[4], longest) > now and known[3] ~= config then
  return {'conflict', known[3]}
end

-- Takes slot s, a digit, if its key is absent and what was granted before is over. The
-- record of a grant ends with its key. What is the same as before is not written again.
local function take(s, before, class_before)
  if cut('until:' .. s, before, longest) > now then return false end
  local ends = now + ARGV[5]
  if not redis.call('SET', KEYS[2 + s], ARGV[1], 'NX', 'PXAT', ends) then return false end
  redis.call('HSET', state, 'until:' .. s, ends, 'config_until', now + longest)
  if known[3] ~= config then redis.call('HSET', state, 'config', config) end
  if class_before ~= class then redis.call('HSET', state, 'class:' .. s, class) end
  return true
end
if not waited and take(first, known[5], known[6]) then return tonumber(first) end

-- How many slots each replica of this class has, holders and waiters alike.
local replicas, holds = 1, {[replica] = 0}
local function count(r, slots)
  if not holds[r] then
    holds[r] = 0
    replicas = replicas + 1
  end
  holds[r] = holds[r] + slots
end
local values = redis.call('MGET', unpack(KEYS, 3))
for s = 1, n do
  if values[s] then
    local token, c, r = string.match(values[s], '^(%S+) (%S+) (%S+)')
    if token ~= 'cooling' and c == class then count(r, 1) end
  end
end

local marked, rival_waits, peer_waits, poorer_waits = false, false, false, false
if waited then
  for _, m in ipairs(redis.call('ZRANGEBYSCORE', waiting, '(' .. now, now + 5000)) do
    local c, r = string.match(m, '^(%S+) (%S+)')
    if c ~= class then
      rival_waits = true
    elseif r == replica then
      marked = true
    else
      count(r, 0)
      peer_waits = true
      poorer_waits = poorer_waits or holds[r] < holds[replica]
    end
  end
end
local share = math.ceil((#own + #shared) / replicas)
if peer_waits and (holds[replica] >= share or poorer_waits) then return {'share'} end

local i = 0
for s in string.gmatch(own .. shared, '.') do
  i = i + 1
  local before = redis.call('HMGET', state, 'until:' .. s, 'class:' .. s)
  -- While another class waits, the one that had a shared slot last leaves it.
  local leaves = i > #own and rival_waits and before[2] == class
  if not leaves and take(s, before[1], before[2]) then
    if marked then redis.call('ZREM', waiting, class .. ' ' .. replica) end
    return tonumber(s)
  end
end

-- A key that would outlive the longest lease was left by a clock that stepped back.
for s = 1, n do
  if values[s] then
    local left = redis.call('PTTL', KEYS[2 + s])
    if left > longest or left == -1 then redis.call('PEXPIRE', KEYS[2 + s], longest) end
  end
end
local mark = tonumber(ARGV[8])
if mark > 0 and holds[replica] < share then
  redis.call('ZADD', waiting, now + mark, class .. ' ' .. replica)
  redis.call('PEXPIRE', waiting, 2 * mark)
end
return {'taken'}
