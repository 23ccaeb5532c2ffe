import ByteStreams

/// The Basic authentication scheme (RFC 7617).
package enum BasicCredentials {
  /// The value of an Authorization or Proxy-Authorization field. `userPass` is the user name, a colon and the password.
  package static func fieldValue(_ userPass: String) -> String {
    "Basic " + Base64.encode(Array(userPass.utf8).span)
  }
}
