import ByteStreams

/// A query parameter that cannot be decoded.
package struct HTTPQueryError: Error, Equatable, Sendable {
  package enum Problem: Equatable, Sendable {
    /// A `%` without two hexadecimal digits after it, or `%00`.
    case badEscape
    /// The decoded bytes are not UTF-8.
    case notUTF8
  }

  /// The name of the parameter as received, not decoded.
  package let parameter: String
  package let problem: Problem
}

extension HTTPQueryError: CustomStringConvertible {
  package var description: String {
    switch problem {
    case .badEscape:
      "query parameter '\(parameter)' is not valid: '%' must be followed by two hexadecimal digits other than 00"
    case .notUTF8: "query parameter '\(parameter)' is not valid: it must be UTF-8 after percent-decoding"
    }
  }
}

/// Iterates over the `name=value` pairs of a query and decodes them (WHATWG URL §5.1: split at `&`, then at the first
/// `=`; `+` is a space).
///
///     var query = HTTPQueryReader(request.query)
///     while try query.next() { … query.name, query.value … }
///
/// A parameter without `=` has an empty value. Empty parameters (`a&&b`) are skipped. Text without escapes is not
/// copied.
package struct HTTPQueryReader: ~Copyable, ~Escapable {
  private let query: Span<UInt8>
  private var position = 0
  private var nameRange = 0..<0
  private var valueRange = 0..<0
  private var decoded = ByteQueue()
  private var decodedNameCount = 0
  private var isDecoded = false

  @_lifetime(copy query)
  package init(_ query: Span<UInt8>) { self.query = query }

  /// The decoded name of the current parameter.
  package var name: Span<UInt8> {
    @_lifetime(borrow self)
    get { isDecoded ? decoded.bytes.extracting(first: decodedNameCount) : query.extracting(nameRange) }
  }

  /// The decoded value of the current parameter.
  package var value: Span<UInt8> {
    @_lifetime(borrow self)
    get {
      isDecoded ? decoded.bytes.extracting(decodedNameCount..<decoded.count) : query.extracting(valueRange)
    }
  }

  /// Advances to the next parameter. Returns false at the end.
  @_lifetime(self: copy self)
  package mutating func next() throws(HTTPQueryError) -> Bool {
    while position < query.count {
      let end = query.firstIndex(of: UInt8(ascii: "&"), from: position) ?? query.count
      let start = position
      position = end &+ 1
      if start == end { continue }
      let pair = query.extracting(start..<end)
      let equals = pair.firstIndex(of: UInt8(ascii: "=")).map { $0 &+ start } ?? end
      nameRange = start..<equals
      valueRange = min(equals &+ 1, end)..<end
      try decode(pair)
      return true
    }
    return false
  }

  @_lifetime(self: copy self)
  private mutating func decode(_ pair: Span<UInt8>) throws(HTTPQueryError) {
    isDecoded = PercentDecoder.isNeeded(for: pair, plusIsSpace: true)
    if !isDecoded {
      // This is the usual case, since a target without escapes is ASCII.
      if pair.isASCII { return }
    } else {
      decoded.removeAll()
      let nameIsGood = PercentDecoder.decode(query.extracting(nameRange), plusIsSpace: true, into: &decoded)
      decodedNameCount = decoded.count
      guard nameIsGood, PercentDecoder.decode(query.extracting(valueRange), plusIsSpace: true, into: &decoded) else {
        throw HTTPQueryError(parameter: query.extracting(nameRange).text(), problem: .badEscape)
      }
    }
    guard name.isUTF8(), value.isUTF8() else {
      throw HTTPQueryError(parameter: query.extracting(nameRange).text(), problem: .notUTF8)
    }
  }
}

extension Span where Element == UInt8 {
  func isUTF8() -> Bool { (try? UTF8Span(validating: self)) != nil }
}
