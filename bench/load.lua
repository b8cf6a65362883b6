-- Sends the prepared requests of a file in order, from the first again after the last.
-- The file has, for each request, its length in bytes on a line and then its bytes, as load.py writes it.

local requests, calls = {}, 0

function init(arguments)
   local file = assert(io.open(arguments[1], "rb"))
   for length in function() return file:read("*n") end do
      file:read(1) -- the end of the line
      requests[#requests + 1] = file:read(length)
   end
   file:close()
end

function request()
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
