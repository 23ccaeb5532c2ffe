import COpenSSL

/// The identity that the peer must prove: a DNS name or an IP address.
///
/// An address is never sent as server name, since RFC 6066 §3 allows names only. It is compared with the certificate's
/// addresses, never with its names.
struct PeerName: Equatable {
  /// The name or the address, without brackets, zone or final dot.
  let text: String
  let isAddress: Bool

  /// `host` as in a URL: `example.com`, `192.0.2.1`, `[2001:db8::1]`.
  init(_ host: String) throws(TLSSettingsError) {
    var name = host[...]
    if name.hasPrefix("["), name.hasSuffix("]") { name = name.dropFirst().dropLast() }
    // The zone is removed, since it has a meaning only on this machine (RFC 6874) and is not in certificates.
    let address = String(name.prefix { $0 != "%" })
    if let parsed = unsafe a2i_IPADDRESS(address) {
      unsafe ASN1_OCTET_STRING_free(parsed)
      ErrorQueue.clear()
      text = address
      isAddress = true
      return
    }
    ErrorQueue.clear()
    // A final dot marks the DNS root. Certificates and server names omit it.
    if name.hasSuffix(".") { name = name.dropLast() }
    let utf8 = name.utf8
    // A name has at most 253 bytes (RFC 1035 §2.3.4). A NUL or a space is refused, since another parser could read a
    // different name.
    guard (1...253).contains(utf8.count), utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }), !name.hasPrefix(".") else {
      throw .badServerName(host)
    }
    text = String(name)
    isAddress = false
  }
}
