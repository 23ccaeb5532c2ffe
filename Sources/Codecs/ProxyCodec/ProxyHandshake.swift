import ByteStreams

/// The client's side of a handshake with a proxy, until the tunnel to the upstream is open.
///
///     while try !handshake.advance(&input, into: &output) { … send `output`, receive into `input` }
///     // the rest of `input` was received through the tunnel
package protocol ProxyHandshake: ~Copyable {
  /// Processes `input` as far as it has arrived and appends the bytes to send to `output`. Returns true when the tunnel
  /// is open. The first call writes the request. Its input may be empty.
  mutating func advance(_ input: inout ByteQueue, into output: inout ByteQueue) throws(ProxyError) -> Bool
}
