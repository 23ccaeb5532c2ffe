import ByteStreams

/// The Basic scheme (RFC 7617): the value of an Authorization or Proxy-Authorization field.
package enum BasicCredentials {
  /// `userPass`: the user name, a colon and the password.
  package static func fieldValue(_ userPass: String) -> String {
    "Basic " + Base64.encode(Array(userPass.utf8).span)
  }
}
