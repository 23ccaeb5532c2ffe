import ByteStreams
import JSONCodec

/// A value of the upstream's messages that messages of the gateway repeat: `${capture:NAME}`.
package struct CaptureRule: Hashable, Sendable {
  package let name: String
  /// Matches the messages with the value; nil if the value is captured from every message that contains one.
  package var match: Matcher?
  package let source: ValueSource
  /// Whether clients may see the value. Otherwise, it is a secret.
  package var isShown = false
  /// Whether the value outlives the connection.
  package var isKept = false

  package init(_ name: String, _ source: ValueSource, match: Matcher? = nil) {
    self.name = name
    self.source = source
    self.match = match
  }

  /// Maximum number of rules. Each may scan every message of the upstream.
  package static let maximumCount = 16
  /// Maximum length of a name, in bytes.
  package static let maximumName = 64

  /// Whether `name` is valid: letters, digits, `_` and `-`.
  package static func isValid(name: String) -> Bool {
    (1...maximumName).contains(name.utf8.count)
      && name.utf8.allSatisfy {
        ASCII.isDigit($0) || (UInt8(ascii: "a")...UInt8(ascii: "z")).contains($0 | 0x20) || $0 == UInt8(ascii: "_")
          || $0 == UInt8(ascii: "-")
      }
  }
}

/// A captured value. The upstream chooses it, so it may contain anything.
package struct CapturedValue: Hashable, Sendable {
  /// The content of a string or text, or a number or boolean as written. Always UTF-8.
  package let content: [UInt8]
  /// Whether the value is a string or a text.
  package let isText: Bool

  package init(_ content: [UInt8], isText: Bool) {
    self.content = content
    self.isText = isText
  }

  /// Maximum size, in bytes. Ids of sessions, tokens and URLs are shorter.
  package static let maximumBytes = 1_024
}

/// What the last message has changed (`UpstreamProtocol.takeCaptureNews`).
package struct CaptureNews: Equatable, Sendable {
  package enum Refusal: Equatable, Sendable {
    case tooLong
    /// An object, an array or invalid JSON.
    case noValue
    case notUTF8

    package var description: String {
      switch self {
      case .tooLong: "it has more than \(CapturedValue.maximumBytes) bytes"
      case .noValue: "it is not a text, number or boolean"
      case .notUTF8: "it is not valid UTF-8"
      }
    }
  }

  package var changed: [String: CapturedValue] = [:]
  /// The names whose value was refused for the first time on this connection. The earlier value remains.
  package var refused: [String: Refusal] = [:]

  var isEmpty: Bool { changed.isEmpty && refused.isEmpty }
}

/// The captured values of one connection.
struct Captures: Sendable {
  private let rules: [CaptureRule]
  private(set) var values: [String: CapturedValue] = [:]
  private var news = CaptureNews()
  /// The names with a refused value. A warning is logged once per name and connection.
  private var refusedNames: Set<String> = []
  private var hasForgottenKept = false
  /// Sets of rules, by index: the rules with a value in the last message, in a message of this connection, and in a
  /// push of this connection.
  private var (inMessage, inConnection, inPushes): (UInt32, UInt32, UInt32) = (0, 0, 0)

  /// Returns nil if there are no rules.
  init?(_ rules: [CaptureRule]) {
    guard !rules.isEmpty else { return nil }
    self.rules = rules
  }

  /// Called when the setup of the connection begins. `kept`: the values of earlier connections.
  mutating func begin(with kept: [String: CapturedValue]) {
    values = kept.filter { name, _ in rules.contains { $0.name == name && $0.isKept } }
  }

  /// The values that later connections may use.
  var valuesToKeep: [String: CapturedValue] {
    guard hasForgottenKept else { return values }
    var own: [String: CapturedValue] = [:]
    for (index, rule) in rules.enumerated() where inConnection & (1 << UInt32(index)) != 0 {
      own[rule.name] = values[rule.name]
    }
    return own
  }

  /// The values of earlier connections are of no use to later connections. This connection still uses them.
  mutating func forgetKept() { hasForgottenKept = true }

  mutating func receive(_ message: Span<UInt8>) {
    inMessage = 0
    for (index, rule) in rules.enumerated() {
      if let match = rule.match, !match.matches(message) { continue }
      switch rule.source.value(in: message) {
      case .none: break
      case .unusable: refuse(rule, .noValue)
      case .value(let content, let isText):
        if content.count > CapturedValue.maximumBytes {
          refuse(rule, .tooLong)
        } else if !UTF8StreamValidator.isValid(content.span) {
          refuse(rule, .notUTF8)
        } else {
          capture(CapturedValue(content, isText: isText), rule, index)
        }
      }
    }
  }

  private mutating func capture(_ value: CapturedValue, _ rule: CaptureRule, _ index: Int) {
    let bit: UInt32 = 1 << UInt32(index)
    defer { (inMessage, inConnection) = (inMessage | bit, inConnection | bit) }
    // The first value of a connection is reported even if it equals the value that was kept from an earlier connection.
    // It may be, for example, the interval of this connection's heartbeats.
    guard values[rule.name] != value || inConnection & bit == 0 else { return }
    values[rule.name] = value
    news.changed[rule.name] = value
  }

  /// Called when the last message is a push.
  mutating func notePush() { inPushes |= inMessage }

  /// The first of `names` whose value is not from the last message, but from an earlier push or connection; nil if
  /// there is none. The acknowledgement of a push must not repeat the id of another push.
  func staleValue(among names: Set<String>) -> String? {
    for (index, rule) in rules.enumerated() where names.contains(rule.name) {
      let bit: UInt32 = 1 << UInt32(index)
      let isFromSetup = inConnection & bit != 0 && inPushes & bit == 0
      if inMessage & bit == 0, !isFromSetup { return rule.name }
    }
    return nil
  }

  private mutating func refuse(_ rule: CaptureRule, _ reason: CaptureNews.Refusal) {
    if refusedNames.insert(rule.name).inserted { news.refused[rule.name] = reason }
  }

  /// Returns the changes since the last call; nil if there are none.
  mutating func takeNews() -> CaptureNews? {
    guard !news.isEmpty else { return nil }
    defer { news = CaptureNews() }
    return news
  }
}

/// The time between two heartbeats as the upstream announces it (`upstream.heartbeat.client.interval_from`).
package struct CapturedInterval: Hashable, Sendable, CustomStringConvertible {
  package let capture: String
  /// Whether the value is a number of seconds. Otherwise, it is a number of milliseconds.
  package let isSeconds: Bool

  /// Parses `NAME` or `NAME:seconds`. Returns nil if the text is not valid.
  package init?(_ text: String) {
    let parts = text.split(separator: ":", omittingEmptySubsequences: false)
    guard parts.count <= 2, CaptureRule.isValid(name: String(parts[0])), parts.count == 1 || parts[1] == "seconds"
    else { return nil }
    capture = String(parts[0])
    isSeconds = parts.count == 2
  }

  package var description: String { isSeconds ? "\(capture):seconds" : capture }

  /// The shortest and the longest interval. With a shorter interval, the upstream could make the gateway send a flood.
  /// A longer interval would switch the heartbeats off.
  package static let range: ClosedRange<TimeSpan> = .milliseconds(100)...(.minutes(10))

  /// Returns the interval within `range`; nil if the value is not a decimal number, or is negative.
  package func span(_ value: CapturedValue) -> TimeSpan? {
    let isDecimal = value.content.allSatisfy { ASCII.isDigit($0) || "+-.eE".utf8.contains($0) }
    guard isDecimal, let number = Double(String(decoding: value.content, as: UTF8.self)), number >= 0 else {
      return nil
    }
    let milliseconds = min(isSeconds ? number * 1_000 : number, Self.range.upperBound.seconds * 1_000)
    let span = TimeSpan.nanoseconds(Int64(milliseconds * 1_000_000))
    return min(max(span, Self.range.lowerBound), Self.range.upperBound)
  }
}
