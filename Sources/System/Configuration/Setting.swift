import ByteStreams
import UpstreamProtocol
import JSONCodec

/// One thing that can be set: its name in the file, what it takes, and what it is for. From this the file, the environment,
/// the flags and the help are all read.
package struct Setting {
  /// Dotted path in the file, such as `upstream.heartbeat.interval`.
  package let path: String
  /// One line for `--help` and for the manual.
  package let summary: String
  /// Flag on the command line, without dashes; nil where only file and environment set it.
  package let flag: String?
  /// A secret is never shown.
  package let isSecret: Bool
  let kind: Kind

  enum Kind {
    case text(WritableKeyPath<GatewaySettings, String>)
    /// A `ws` or `wss` URL, or nothing.
    case webSocketURL(WritableKeyPath<GatewaySettings, String>)
    /// Such URLs, in order.
    case webSocketURLs(WritableKeyPath<GatewaySettings, [String]>)
    case choice(WritableKeyPath<GatewaySettings, String>, [String])
    case list(WritableKeyPath<GatewaySettings, [String]>)
    /// `Name: value` pairs; a mapping in the file, lines in the environment.
    case fields(WritableKeyPath<GatewaySettings, [String]>)
    /// `4000-4099: park` pairs; a mapping in the file, lines in the environment.
    case closeCodes(WritableKeyPath<GatewaySettings, [CloseCodeRule]>)
    case flag(WritableKeyPath<GatewaySettings, Bool>)
    case count(WritableKeyPath<GatewaySettings, Int>, ClosedRange<Int>)
    /// A count where `auto` stands for 0.
    case automaticCount(WritableKeyPath<GatewaySettings, Int>, ClosedRange<Int>)
    case size(WritableKeyPath<GatewaySettings, Int>, ClosedRange<Int>)
    case duration(WritableKeyPath<GatewaySettings, TimeSpan>, ClosedRange<TimeSpan>)
    /// A number that need not be whole.
    case fraction(WritableKeyPath<GatewaySettings, Double>, ClosedRange<Double>)
    // What follows is read from YAML also where it stands in the environment (`StructureReader`).
    /// A message with blanks, or nothing.
    case template(WritableKeyPath<GatewaySettings, Template?>, Template.Place)
    case pointer(WritableKeyPath<GatewaySettings, JSONPointer?>)
    case matcher(WritableKeyPath<GatewaySettings, Matcher?>)
    case opening(WritableKeyPath<GatewaySettings, [UpstreamConventions.OpeningMessage]>)
  }

  init(_ path: String, _ kind: Kind, _ summary: String, flag: String? = nil, isSecret: Bool = false) {
    self.path = path
    self.kind = kind
    self.summary = summary
    self.flag = flag
    self.isSecret = isSecret
  }

  /// `DRAWBRIDGE_UPSTREAM_HEARTBEAT_INTERVAL` for `upstream.heartbeat.interval`.
  package var environmentName: String {
    "DRAWBRIDGE_" + path.uppercased().map { $0 == "." ? "_" : String($0) }.joined()
  }

  /// What a value looks like, for help and errors.
  package var expectation: String {
    switch kind {
    case .text: "a text"
    case .webSocketURL: "a URL such as ws://127.0.0.1:9000/ or wss://example.org/socket"
    case .webSocketURLs: "URLs such as ws://127.0.0.1:9000/ or wss://example.org/socket"
    case .choice(_, let words): "one of " + words.joined(separator: ", ")
    case .list: "a list"
    case .fields: "fields as 'Name: value'"
    case .closeCodes: CloseCodeRule.expectation
    case .flag: "true or false"
    case .count(_, let range): "a number from \(range.lowerBound) to \(range.upperBound)"
    case .automaticCount(_, let range): "'auto' or a number from \(max(1, range.lowerBound)) to \(range.upperBound)"
    case .size(_, let range):
      "a size from \(ValueText.size(range.lowerBound)) to \(ValueText.size(range.upperBound)), such as 64KiB or 16MiB"
    case .duration(_, let range):
      "a duration from \(range.lowerBound.text) to \(range.upperBound.text), such as 500ms, 20s or 10m"
    case .fraction(_, let range): "a number from \(range.lowerBound) to \(range.upperBound)"
    case .template: "a message, in which ${…} stands for what is known later only"
    case .pointer: "a JSON pointer such as /data/sequence"
    case .matcher: "a text, or one or more of " + StructureReader.matcherKeys.joined(separator: ", ")
    case .opening: "a list, each of " + StructureReader.openingKeys.joined(separator: ", ")
    }
  }

  /// The accepted word nearest to `word`, as a part of an error.
  func suggestion(for word: String) -> String {
    switch kind {
    case .choice(_, let words): Suggestion.text(for: word, among: words)
    case .flag: Suggestion.text(for: word, among: ["true", "false"])
    default: ""
    }
  }

  var isList: Bool {
    switch kind {
    case .list, .fields, .webSocketURLs, .closeCodes: true
    case .text, .webSocketURL, .choice, .flag, .count, .automaticCount, .size, .duration, .fraction, .template,
      .pointer,
      .matcher, .opening:
      false
    }
  }

  /// Whether its values are `key: value` pairs.
  var isMapping: Bool {
    switch kind {
    case .fields, .closeCodes: true
    case .text, .webSocketURL, .webSocketURLs, .choice, .list, .flag, .count, .automaticCount, .size, .duration,
      .fraction, .template, .pointer, .matcher, .opening:
      false
    }
  }

  /// Whether it is made of YAML, so that `StructureReader` sets it.
  package var isStructured: Bool {
    switch kind {
    case .template, .pointer, .matcher, .opening: true
    case .text, .webSocketURL, .webSocketURLs, .choice, .list, .fields, .closeCodes, .flag, .count, .automaticCount,
      .size,
      .duration, .fraction:
      false
    }
  }

  /// Sets a single value; false where `text` is not what is expected.
  func apply(_ text: String, to settings: inout GatewaySettings) -> Bool {
    switch kind {
    case .text(let path):
      settings[keyPath: path] = text
    case .webSocketURL(let path):
      guard text.isEmpty || Self.isWebSocketURL(text) else { return false }
      settings[keyPath: path] = text
    case .choice(let path, let words):
      guard words.contains(text) else { return false }
      settings[keyPath: path] = text
    case .list, .fields, .webSocketURLs, .closeCodes:
      return apply(list: [text], to: &settings)
    case .flag(let path):
      guard text == "true" || text == "false" else { return false }
      settings[keyPath: path] = text == "true"
    case .automaticCount(let path, let range):
      if text == "auto" {
        settings[keyPath: path] = 0
        return true
      }
      guard let value = Int(text), range.contains(value), value > 0 else { return false }
      settings[keyPath: path] = value
    case .count(let path, let range):
      guard let value = Int(text), range.contains(value) else { return false }
      settings[keyPath: path] = value
    case .size(let path, let range):
      guard let value = ValueText.parseSize(text), range.contains(value) else { return false }
      settings[keyPath: path] = value
    case .duration(let path, let range):
      guard let value = TimeSpan(text), range.contains(value) else { return false }
      settings[keyPath: path] = value
    case .fraction(let path, let range):
      guard let value = Double(text), range.contains(value) else { return false }
      settings[keyPath: path] = value
    case .template, .pointer, .matcher, .opening:
      return false
    }
    return true
  }

  private static func isWebSocketURL(_ text: String) -> Bool {
    let scheme = text.prefix { $0 != ":" }.lowercased()
    guard scheme == "ws" || scheme == "wss" else { return false }
    let rest = text.dropFirst(scheme.count)
    guard rest.hasPrefix("://"), let host = rest.dropFirst(3).utf8.first else { return false }
    return !"/?#:".utf8.contains(host) && text.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F }
  }

  func apply(list: [String], to settings: inout GatewaySettings) -> Bool {
    switch kind {
    case .list(let path):
      settings[keyPath: path] = list
      return true
    case .fields(let path):
      let isWellFormed = list.allSatisfy { line in
        guard let colon = line.firstIndex(of: ":"), colon != line.startIndex else { return false }
        return line[..<colon].utf8.allSatisfy(ASCII.isToken)
          && line.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7F || $0 == 0x09 }
      }
      guard isWellFormed else { return false }
      settings[keyPath: path] = list
      return true
    case .webSocketURLs(let path):
      guard list.allSatisfy(Self.isWebSocketURL) else { return false }
      settings[keyPath: path] = list
      return true
    case .closeCodes(let path):
      let rules = list.compactMap { CloseCodeRule($0) }
      guard rules.count == list.count else { return false }
      settings[keyPath: path] = rules
      return true
    case .text, .webSocketURL, .choice, .flag, .count, .automaticCount, .size, .duration, .fraction, .template,
      .pointer, .matcher, .opening:
      return false
    }
  }

  /// The value as it would stand in the file.
  package func show(_ settings: GatewaySettings) -> String {
    switch kind {
    case .text(let path), .webSocketURL(let path): PrintableText.quoted(settings[keyPath: path])
    case .choice(let path, _): settings[keyPath: path]
    case .list(let path), .fields(let path), .webSocketURLs(let path):
      "[" + settings[keyPath: path].map(PrintableText.quoted).joined(separator: ", ") + "]"
    case .flag(let path): settings[keyPath: path] ? "true" : "false"
    case .count(let path, _): String(settings[keyPath: path])
    case .automaticCount(let path, _): settings[keyPath: path] == 0 ? "auto" : String(settings[keyPath: path])
    case .size(let path, _): ValueText.size(settings[keyPath: path])
    case .duration(let path, _): settings[keyPath: path].text
    case .fraction(let path, _): String(settings[keyPath: path])
    case .closeCodes(let path): "{" + settings[keyPath: path].map(\.text).joined(separator: ", ") + "}"
    case .template(let path, _): StructureText.text(of: settings[keyPath: path])
    case .pointer(let path): PrintableText.quoted(settings[keyPath: path]?.description ?? "")
    case .matcher(let path): StructureText.text(of: settings[keyPath: path])
    case .opening(let path): StructureText.text(of: settings[keyPath: path])
    }
  }
}
