import HTTPCodec

/// A user name and password for a proxy, for the Basic scheme (RFC 7617) or SOCKS (RFC 1929).
package struct ProxyCredentials: Hashable, Sendable {
  package let username: String
  package let password: String

  package init(username: String, password: String) {
    self.username = username
    self.password = password
  }

  /// The value of a Proxy-Authorization field. The user name must not contain a colon, and neither part may contain
  /// control characters (RFC 7617 §2).
  var basic: String { BasicCredentials.fieldValue("\(username):\(password)") }

  /// Why these credentials cannot be sent, or nil if they can. For SOCKS, each length is one byte (RFC 1929 §2).
  package func problem(forSOCKS: Bool) -> String? {
    if forSOCKS {
      let fits = [username, password].allSatisfy { (1...255).contains($0.utf8.count) }
      return fits ? nil : "a SOCKS user name and password must have 1 to 255 bytes each"
    }
    if username.contains(":") { return "a user name for Basic authentication must not contain a colon" }
    let isPrintable = (username + password).utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7F }
    return isPrintable ? nil : "a user name or password contains a control character"
  }
}
