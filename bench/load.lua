-- Sends the prepared requests of a file in order, and starts again after the last one. The second argument is
-- optional: the average pause in milliseconds. With it, each request is sent once, after a random pause, and
-- the run ends when all are answered.
-- load.py writes the file. For each request it contains the length in bytes on a line, and then the bytes.

local requests, calls, pauses, answered = {}, 0, 0, 0

local function say(word) -- to load.py, which stops wrk
   io.write(word, "\n")
   io.flush()
end

function init(arguments)
   local file = assert(io.open(arguments[1], "rb"))
   for length in function() return file:read("*n") end do
      file:read(1) -- the end of the line
      requests[#requests + 1] = file:read(length)
   end
   file:close()
   if not arguments[2] then return end
   -- wrk looks for these functions after this one; without them it does less for each request.
   function delay() -- before each request
      pauses = pauses + 1
      return pauses > #requests and 1e6 or math.random(0, 2 * arguments[2])
   end
   function response()
      answered = answered + 1
      if answered == #requests then say("answered") end
   end
end

function request()
   if calls == 1 then say("started") end
   local position = math.max(calls, 1) -- wrk does not send what the first call returns
   calls = calls + 1
   return requests[(position - 1) % #requests + 1]
end

function done(summary, latency)
   local errors = summary.errors
   local line = '{"requests": %d, "seconds": %.6f, "p50": %.3f, "p99": %.3f, "max": %.3f, '
      .. '"refused": %d, "timeouts": %d, "broken": %d}\n'
   io.write(line:format(
      summary.requests, summary.duration / 1e6,
      latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3,
      errors.status, errors.timeout, errors.connect + errors.read + errors.write))
end
