import ByteStreams

/// The kinds of requests that a client may make.
package struct Scopes: OptionSet, Hashable, Sendable {
  package let rawValue: UInt8

  package init(rawValue: UInt8) { self.rawValue = rawValue }

  /// Post messages, and read their deliveries.
  package static let send = Scopes(rawValue: 1)
  /// Receive pushes: polls, streams, consumers.
  package static let receive = Scopes(rawValue: 2)
  /// Make calls.
  package static let call = Scopes(rawValue: 4)
  /// Change sessions.
  package static let admin = Scopes(rawValue: 8)

  package static let all: Scopes = [.send, .receive, .call, .admin]

  /// The words of tokens and of the configuration.
  package static let expectation = "send, receive, call, admin"

  /// The scope that `word` names; nil if no scope has this name.
  package init?(word: Span<UInt8>) {
    if word.equals("send") {
      self = .send
    } else if word.equals("receive") {
      self = .receive
    } else if word.equals("call") {
      self = .call
    } else if word.equals("admin") {
      self = .admin
    } else {
      return nil
    }
  }

  package init?(word: String) { self.init(word: word.utf8Span.span) }

  /// The scopes of an OAuth `scope` value (RFC 6749 §3.3). Words of other applications are ignored.
  package init(listedIn text: Span<UInt8>) {
    self = []
    var start = 0
    while start < text.count {
      let end = text.firstIndex(of: UInt8(ascii: " "), from: start) ?? text.count
      if let scope = Scopes(word: text.extracting(start..<end)) { insert(scope) }
      start = end + 1
    }
  }
}
