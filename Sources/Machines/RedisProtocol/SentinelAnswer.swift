import ByteStreams
import HTTPCodec
import RESPCodec

/// The address of a server, as Sentinel reports it.
package struct RedisAddress: Hashable, Sendable, CustomStringConvertible {
  /// Name or address, without brackets.
  package let host: String
  package let port: UInt16

  package init(host: String, port: UInt16) {
    self.host = host
    self.port = port
  }

  /// Returns nil if the address is not valid: a name has at most 255 bytes, all of them printable ASCII.
  fileprivate init?(_ host: String, _ port: String) {
    guard (1...255).contains(host.utf8.count), host.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }),
      let number = Array(port.utf8).span.decimalValue(), let port = UInt16(exactly: number), port > 0
    else { return nil }
    self.init(host: host, port: port)
  }

  /// As in a URL: `host:port`.
  package var description: String { "\(URLAuthority.bracketed(host)):\(port)" }
}

/// The requests to Sentinels, and their replies.
package enum SentinelAnswer {
  /// The channel on which a Sentinel reports the new address of a primary, after the promotion of a replica.
  package static var switchChannel: String { "+switch-master" }

  /// The request for the address of the primary called `name`.
  package static func request(for name: String) -> [RESPPart] {
    ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", .text(name)]
  }

  /// The address in the reply to the request for the primary called `name`.
  package static func address(in reply: RESPReply, of name: String) throws(RedisFailure) -> RedisAddress {
    if case .null = reply { throw .unsuitable(.noPrimary(name)) }
    guard let parts = reply.elements, parts.count == 2, let host = parts[0].text, let port = parts[1].text,
      let address = RedisAddress(host, port)
    else { throw .violation("the address of the primary is not valid") }
    return address
  }

  /// The new address in a message of `switchChannel`: `name oldHost oldPort newHost newPort`. Returns nil if the
  /// message concerns another primary or is not valid.
  package static func newAddress(in payload: [UInt8], of name: String) -> RedisAddress? {
    let words = payload.span.text().split(separator: " ").map(String.init)
    guard words.count == 5, words[0] == name else { return nil }
    return RedisAddress(words[3], words[4])
  }
}
