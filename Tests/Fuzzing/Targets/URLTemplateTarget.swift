import ByteStreams
import Profiles
import WebSocketCodec

/// The URL of a profile, and a client's values for its variables. A value must change only its own place in the URL.
///
/// Input: lines. The first line is the URL with placeholders. The others are the values of its variables, in the order
/// of their names.
enum URLTemplateTarget {
  static func run(_ input: Span<UInt8>) throws(Finding) {
    let lines = [UInt8](copying: input).split(separator: 0x0A, omittingEmptySubsequences: false)
    let text = String(decoding: lines[0], as: UTF8.self)
    guard let template = try? URLTemplate(text) else { return }
    let names = template.variables.sorted()
    var values: [String: String] = [:]
    for (name, line) in zip(names, lines.dropFirst()) {
      let value = String(decoding: line, as: UTF8.self)
      // Other values are refused before a URL is made.
      if ProfileVariable(name: name).problem(with: value) == nil { values[name] = value }
    }
    guard let url = try? template.url(values) else { return }
    let sample = template.sample

    let request = ClientHandshake.Request(target: url.target, host: url.hostField)
    if let problem = request.problem { throw Finding("the URL does not allow a request: \(problem)") }
    try require(url.isSecure == sample.isSecure && url.port == sample.port, "scheme or port is that of \(url)")
    try require(url.credentials == sample.credentials, "the credentials are those of \(url)")
    try requireHost(url.host, sample.host, template)
    try requireTarget(url.target, sample.target, template, values)
    let again = try? WebSocketURL(url.text)
    try require(again == url, "\(url) is read as \(String(describing: again)) after it was written")
  }

  private static func requireHost(_ host: String, _ sample: String, _ template: URLTemplate) throws(Finding) {
    guard template.hasVariableHost else {
      try require(host == sample, "the host is \(host)")
      return
    }
    // The profile itself may have delimiters in its host, but a value adds none.
    func delimiters(_ host: String) -> String { host.filter { "/?#@:[]\\%".contains($0) } }
    try require(delimiters(host) == delimiters(sample), "a value made the host \(host)")
  }

  /// Path and query have as many parts as with harmless values, and each encoded value is in its place.
  private static func requireTarget(
    _ target: String, _ sample: String, _ template: URLTemplate, _ values: [String: String]
  ) throws(Finding) {
    for delimiter in ["/", "?", "&", "=", ";", "#"] {
      let (count, expected) = (parts(target, delimiter), parts(sample, delimiter))
      try require(count == expected, "\(target) has \(count) parts between '\(delimiter)', not \(expected)")
    }
    let path = target.prefix { $0 != "?" }.split(separator: "/")
    let samplePath = sample.prefix { $0 != "?" }.split(separator: "/")
    let isElsewhere = path.contains { $0 == "." || $0 == ".." }
    try require(
      !isElsewhere || samplePath.contains { $0 == "." || $0 == ".." }, "\(target) leaves the path of the profile")
    if !template.hasVariableHost {
      for value in values.values {
        try require(target.contains(encoded(value)), "\(target) does not have the value '\(value)'")
      }
    }
  }

  private static func parts(_ text: String, _ delimiter: String) -> Int {
    text.split(separator: delimiter, omittingEmptySubsequences: false).count
  }

  private static func encoded(_ text: String) -> String {
    var result = ""
    for byte in text.utf8 {
      let character = Character(Unicode.Scalar(byte))
      if character.isLetter || character.isNumber || "-._~".contains(character) {
        result.append(character)
      } else {
        result += "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16, uppercase: true)
      }
    }
    return result
  }
}
