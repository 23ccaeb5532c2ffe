import COpenSSL

/// Who the peer must prove to be: a DNS name or an IP address.
///
/// An address is never sent as server name (RFC 6066 §3 has names only) and is compared with the certificate's addresses,
/// never with its names.
struct PeerName: Equatable {
  /// Without brackets, zone or final dot.
  let text: String
  let isAddress: Bool

  /// `host` as in a URL: `example.com`, `192.0.2.1`, `[2001:db8::1]`.
  init(_ host: String) throws(TLSSettingsError) {
    var name = host[...]
    if name.hasPrefix("["), name.hasSuffix("]") { name = name.dropFirst().dropLast() }
    // RFC 6874: the zone is this machine's own business, and in no certificate.
    let address = String(name.prefix { $0 != "%" })
    if let parsed = unsafe a2i_IPADDRESS(address) {
      unsafe ASN1_OCTET_STRING_free(parsed)
      ErrorQueue.clear()
      text = address
      isAddress = true
      return
    }
    ErrorQueue.clear()
    // A final dot says 'from the root', which certificates and server names never write.
    if name.hasSuffix(".") { name = name.dropLast() }
    let utf8 = name.utf8
    // RFC 1035 §2.3.4; a NUL or a blank in it would mean another name to another reader.
    guard (1...253).contains(utf8.count), utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }), !name.hasPrefix(".") else {
      throw .badServerName(host)
    }
    text = String(name)
    isAddress = false
  }
}
