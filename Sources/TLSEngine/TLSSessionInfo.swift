/// What a completed handshake agreed on.
package struct TLSSessionInfo: Equatable, Sendable {
  package let version: TLSVersion
  /// The cipher suite by its standard name, such as `TLS_AES_256_GCM_SHA384`.
  package let cipher: String
  /// The protocol that ALPN agreed on; nil when the peer ignored the offer.
  package let applicationProtocol: String?
  /// The subject of the peer's certificate, such as `CN = example.com`. May be empty.
  package let peerSubject: String
  package let peerIssuer: String
  /// When the peer's certificate expires: seconds since 1970 UTC.
  package let certificateExpiry: Int64
  /// The key to pin to have this peer and no other.
  package let peerPin: PublicKeyPin
}
