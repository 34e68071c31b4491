"""Limits of connections, requests and responses."""

# Bytes by which a body of declared size may exceed its size limit, so that the server still reads and discards it.
# Beyond: the connection is closed, as by Go.
BODY_SKIPPED = 256 * 1024
# Seconds of a write. Beyond: 504. Upstream: requestTimeoutUpperBound.
REQUEST_DEADLINE = 34.0
# Seconds that a client requests for a watch. Beyond: the watch gets this time. Upstream: the number overflows, and the
# watch ends.
MAX_WATCH_TIMEOUT = 10**9
# Seconds in which a body must arrive. Beyond: 408.
BODY_TIMEOUT = 30.0
# Bytes of a body that are buffered until a handler reads them. Beyond: back-pressure.
BODY_BUFFER = 32 * 1024
# Seconds in which the first request head of a connection must arrive. Beyond: the connection is closed. Upstream:
# ReadHeaderTimeout.
HEAD_TIMEOUT = 32.0
# Seconds in which a client reads nothing of a response. Beyond: the connection is closed.
UNREAD_TIMEOUT = 120.0
# Seconds from a response until the next request head is complete. Beyond: the connection is closed. Upstream:
# IdleTimeout.
KEEPALIVE = 90.0
# Headers of a request. Beyond: 431. Upstream: no limit.
MAX_HEADERS = 2_000
# Bytes of a request head. Beyond: 431. Upstream: DefaultMaxHeaderBytes of Go.
MAX_HEAD = 1024 * 1024
# Bytes of memory of all unfinished request heads; a sixteenth of the server's memory if that is less. Beyond: the
# connections with the largest heads are closed.
UNFINISHED_HEADS = 32 * 1024 * 1024
# Connections without an authenticated request; this number of TLS connections needs 100 MiB. Beyond: the oldest idle
# connection is closed, or the new connection if none is idle.
UNAUTHENTICATED = 2_000
# Bytes of memory of a request head. Beyond: the connection closes after the response, since its parser keeps the head.
LARGE_HEAD = 128 * 1024
# Lists of several segments that are encoded concurrently. Beyond: they wait.
LISTS_AT_ONCE = 4
# Bytes of a body or stored object for which no memory is reserved. Beyond: the request reserves memory, and gets a 429
# if memory is scarce.
UNWEIGHED = 4 * 1024
# Bytes of a response to a GET that does not count for the memory budget of its user. Beyond: the bytes count until the
# server has sent them.
ANSWER_UNWEIGHED = 64 * 1024
# Bytes of a response that is sent uncompressed. Beyond: it is compressed if the client accepts gzip. Upstream:
# defaultGzipThresholdBytes.
GZIP_FROM = 128 * 1024
# Bytes compressed on the event loop. Beyond: a thread compresses them.
GZIP_INLINE = 256 * 1024
# Bytes of the kernel's send buffer of a large response. Beyond: back-pressure.
SEND_BUFFER = 256 * 1024
# Bytes of a large response that TLS encrypts in one write. Beyond: the next write encrypts them.
TLS_WRITE = 128 * 1024
# Concurrent watches of a user. Beyond: 429.
WATCHES_OF_A_USER = 20_000
# Bytes of the kernel's send buffer of a watch. Beyond: back-pressure.
WATCH_SEND_BUFFER = 256 * 1024
# Bytes that wait in the transport of a watch. Beyond: back-pressure.
WATCH_HIGH_WATER = 1024 * 1024
# Bytes that wait in the transports of all watches of a user. Beyond: back-pressure.
UNREAD_OF_A_USER = 64 * 1024 * 1024
# Bytes that a client sends on the WebSocket of a watch between two pings. Beyond: the connection is closed.
WEBSOCKET_INPUT = 64 * 1024
# Subprotocols that a client offers. Beyond: 400.
WEBSOCKET_PROTOCOLS = 100
# Characters of all warnings of a response. Beyond: each warning is truncated to MAX_WARNING characters; if this is not
# enough, the last warnings are omitted.
MAX_WARNINGS = 4_096
# Characters of each warning if all warnings exceed MAX_WARNINGS. Beyond: the warning is truncated.
MAX_WARNING = 256
# Warning headers of a response. Beyond: further warnings are omitted, since Python's http.client reads at most 100
# headers.
WARNING_LINES = 64
# File descriptors that are reserved for other uses than client connections: an eighth of all, but not more than this
# number. Beyond: further descriptors are for client connections.
FILES_RESERVED_AT_MOST = 1_024
# Seconds in which a refused connection must send its request. Beyond: the connection is closed.
REFUSAL_WAIT = 1.0
# Characters of an Origin header that a response repeats. Beyond: the response has no CORS headers.
MAX_ORIGIN = 1_024
# Bytes of an object, multiplied by the number of its Table columns whose JSONPath searches the object. Below this
# number, the event loop computes the Table row. Beyond: a thread computes it.
ROW_SEARCHED = 32 * 1024
# Fields and list items of a document encoded on the event loop. Beyond: a thread encodes it.
MEMBERS_INLINE = 1_000
# Threads that decode large bodies. Beyond: bodies wait.
DECODING_THREADS = 2
# Alternatives and parameters of an Accept or Content-Type header; parsing them takes 4 milliseconds. Beyond: 431.
HEADER_PARTS = 2_500
# Parameters of a query. Beyond: all are ignored. Upstream: urlmaxqueryparams of Go.
QUERY_PARAMETERS = 10_000
# Parsed header values in a cache. Beyond: the least recently used is evicted.
HEADERS_CACHED = 512
# Characters of a header value that is cached. Beyond: it is parsed each time.
HEADER_CACHED = 1_024
# Resources of a catalog whose discovery is computed on the event loop. Beyond: a thread computes it.
BUILD_INLINE = 64
# Fields of malformed protobuf searched for the error. Beyond: a general message. Upstream: no limit.
WALKED_FIELDS = 2_000
# Nesting of malformed protobuf searched for the error. Beyond: a general message. Upstream: no limit.
WALKED_DEPTH = 100
# Documents of OpenAPI and aggregated discovery in each of two caches: of the times of their last change, and of their
# last content. Beyond: the cache is cleared.
PUBLISHED_PATHS = 16_384
# Characters of a User-Agent in an audit event. Beyond: it is truncated. Upstream: maxUserAgentLength.
AUDIT_AGENT = 1024
# Bytes of access log lines that wait for standard error. Beyond: lines are dropped and counted.
ACCESS_HELD = 8 * 1024 * 1024
# Seconds in which a stopping server writes the remaining lines of the access log. Beyond: they are dropped.
ACCESS_FLUSH = 1.0
# Connections that wait in the kernel's accept queue. Beyond: the kernel drops them, and clients retry.
BACKLOG = 4096
# Seconds in which a stopping server completes requests. Beyond: they are cancelled.
SHUTDOWN_DRAIN = 3.0
# Seconds in which cancelled requests must end. Beyond: their connections are closed.
SHUTDOWN_CANCELLED = 0.5
# Seconds in which a stopping server accepts connections of the kernel's queue. Beyond: the kernel resets them.
SHUTDOWN_ACCEPT = 0.02
# Seconds in which a connection without a request must send its first request to a stopping server. Beyond: the
# connection is closed.
SHUTDOWN_FIRST = 0.2
# Seconds in which clients must read the last responses. Beyond: connections are closed.
SHUTDOWN_CLOSE = 1.0
# Seconds of a TLS handshake. Beyond: the connection is closed.
HANDSHAKE = 10.0
# Addresses of X-Forwarded-For in an audit event. Beyond: the event has only the first addresses. Upstream: no limit.
AUDIT_ADDRESSES = 100
# Characters of an address that a proxy reports in a header. Beyond: it is not used as an address.
ADDRESS_TEXT = 64
# Seconds of a request other than a watch. Beyond: it is logged as slow.
SLOW_REQUEST = 1.0
