import ByteStreams
import HTTPCodec

/// Finds the token of a request. A token in the query is not accepted: URLs are logged, shared and kept in histories.
enum RequestCredentials {
  private static var scheme: StaticString { "bearer" }
  private static var cookieName: StaticString { "drawbridge_token=" }

  /// Returns the token of `Authorization: Bearer TOKEN` (RFC 6750 §2.1). A request in which this field is repeated has
  /// already been refused by the server.
  @_lifetime(copy value)
  static func bearerToken(in value: Span<UInt8>) throws(AuthenticationRefusal) -> Span<UInt8> {
    let length = scheme.utf8CodeUnitCount
    guard value.count > length, value.extracting(first: length).equalsIgnoringCase(scheme),
      value[length] == UInt8(ascii: " ")
    else { throw .otherScheme }
    var start = length
    while start < value.count, value[start] == UInt8(ascii: " ") { start += 1 }
    return value.extracting(start..<value.count)
  }

  /// Returns the place of the token in the cookie `drawbridge_token`; nil if there is no such cookie, or if this
  /// request may not use it.
  ///
  /// A browser sends the cookie with every request to this host, whichever page causes the request. So the cookie is
  /// used only for requests that change nothing and that come from a page of this origin or of an allowed origin. If
  /// the request has Origin, it has already been checked.
  static func cookie(
    of request: borrowing HTTPRequestHead
  ) throws(AuthenticationRefusal) -> (field: Int, value: Range<Int>)? {
    guard request.method == .get || request.method == .head else { return nil }
    let isSameOrigin = request.fields.first(.secFetchSite)?.equals("same-origin") ?? false
    guard isSameOrigin || request.fields.contains(.origin) else { return nil }
    return try find(in: request)
  }

  /// Whether the request has the cookie, even if it may not use it.
  static func hasCookie(_ request: borrowing HTTPRequestHead) -> Bool {
    do throws(AuthenticationRefusal) {
      return try find(in: request) != nil
    } catch {
      return true
    }
  }

  private static func find(
    in request: borrowing HTTPRequestHead
  ) throws(AuthenticationRefusal) -> (field: Int, value: Range<Int>)? {
    var found: (field: Int, value: Range<Int>)?
    for index in 0..<request.fields.count where request.fields.name(at: index).equalsIgnoringCase("cookie") {
      let value = request.fields.value(at: index)
      var start = 0
      while start < value.count {
        let end = value.firstIndex(of: UInt8(ascii: ";"), from: start) ?? value.count
        while start < end, value[start] == UInt8(ascii: " ") { start += 1 }
        if value.extracting(start..<end).starts(with: cookieName) {
          // If the cookie occurs twice, a page of a neighbouring domain may have set one of the two.
          guard found == nil else { throw .repeatedCookie }
          found = (index, start + cookieName.utf8CodeUnitCount..<end)
        }
        start = end + 1
      }
    }
    return found
  }
}
