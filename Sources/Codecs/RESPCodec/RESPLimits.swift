/// Limits on the memory that the replies of a Redis server can use. Memory grows with the bytes that arrive, and never
/// with an announced length or count. 'Stops' names the replies against which a limit protects.
package struct RESPLimits: Hashable, Sendable {
  /// Bytes of a simple string, an error, a number or a length, without its CRLF. Redis limits its own lines to 64 KiB
  /// (`PROTO_INLINE_MAX_SIZE`). Stops: a line without end.
  package var lineBytes = 64 << 10

  /// Bytes of one reply with everything in it. Twice the default of the largest message, 16 MiB, so that a reply with
  /// one such message fits. Stops: an endless string, and an endless array of strings.
  package var replyBytes = 32 << 20

  /// Number of values in one reply, including nested arrays. A string of one byte has 7 bytes on the wire and about 80
  /// in memory, so this limit allows about 20 MiB. Stops: an endless array of tiny values.
  package var elements = 262_144

  /// Depth of nested arrays. The reply to `XREAD` has four levels, and hiredis accepts nine. Stops: a reply that only
  /// opens arrays.
  package var depth = 8

  package init() {}
}
