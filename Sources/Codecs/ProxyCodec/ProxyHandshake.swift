import ByteStreams

/// What a client says to a proxy before the tunnel to the upstream is open.
///
///     while try !handshake.advance(&input, into: &output) { … send `output`, receive into `input` }
///     // what is left in `input` came through the tunnel
package protocol ProxyHandshake: ~Copyable {
  /// Goes on as far as `input` allows; true when the tunnel is open. What is appended to `output` is to be sent, also
  /// before the first byte of `input`.
  mutating func advance(_ input: inout ByteQueue, into output: inout ByteQueue) throws(ProxyError) -> Bool
}
