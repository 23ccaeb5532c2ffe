import ByteStreams
import JSONCodec

/// The definition of a created session that gateways share, as in the hash `sessions`: the incarnation in 16
/// hexadecimal digits, a space, and a JSON object. Versions may run side by side, so unknown members are ignored.
package struct SessionDefinition: Hashable, Sendable {
  /// Random bits. They distinguish a session from a later session of the same name, also in the names of the keys in
  /// Redis.
  package let incarnation: UInt64
  package let profile: String
  /// The values of all variables of the profile, by name.
  package let variables: [String: String]
  /// The principal of the client.
  package let owner: String
  /// When the session was created, in milliseconds since 1970, by the clock of the creating gateway.
  package let time: Int64
  /// How long the session may be idle before it is closed.
  package let idleLimit: TimeSpan

  package init(
    incarnation: UInt64, profile: String, variables: [String: String], owner: String, time: Int64, idleLimit: TimeSpan
  ) {
    self.incarnation = incarnation
    self.profile = profile
    self.variables = variables
    self.owner = owner
    self.time = time
    self.idleLimit = idleLimit
  }

  /// Maximum bytes of the text. The values of variables can never be that long, since they become parts of a URL and of
  /// header fields. This limit and the largest number of sessions that can be configured also limit the size of a page
  /// of the list.
  package static let maximumTextLength = 16_384
  static let incarnationLength = 16

  /// The name of the session in the store: the client's name, `~` and the incarnation. The name of a configured session
  /// contains no `~`.
  package func storedName(_ name: String) -> String {
    var text = ByteQueue()
    text.append("\(name)~")
    text.append(hexadecimal: incarnation, digits: Self.incarnationLength)
    return text.bytes.text()
  }

  /// The parts of a name in the store: the client's name and the incarnation. nil if the session is configured.
  package static func parts(of storedName: String) -> (name: Substring, incarnation: Substring)? {
    guard let mark = storedName.lastIndex(of: "~") else { return nil }
    return (storedName[..<mark], storedName[storedName.index(after: mark)...])
  }

  package func write(into output: inout ByteQueue) {
    output.append(hexadecimal: incarnation, digits: Self.incarnationLength)
    output.append(" {\"profile\":" as StaticString)
    output.append(jsonString: profile)
    output.append(",\"variables\":{" as StaticString)
    for (index, name) in variables.keys.sorted().enumerated() {
      if index > 0 { output.append("," as StaticString) }
      output.append(jsonString: name)
      output.append(":" as StaticString)
      output.append(jsonString: variables[name] ?? "")
    }
    output.append("},\"owner\":" as StaticString)
    output.append(jsonString: owner)
    output.append(",\"time\":" as StaticString)
    output.append(decimal: UInt64(max(0, time)))
    output.append(",\"idle_milliseconds\":" as StaticString)
    output.append(decimal: UInt64(max(0, idleLimit.millisecondsRoundedUp)))
    output.append("}" as StaticString)
  }

  package var text: [UInt8] {
    var output = ByteQueue()
    write(into: &output)
    return output.copyBytes()
  }

  /// Returns nil if the text is too long, a member is malformed, or a member that every version writes is missing.
  package init?(_ text: Span<UInt8>) {
    let length = Self.incarnationLength
    guard text.count > length, text.count <= Self.maximumTextLength, text[length] == UInt8(ascii: " "),
      let incarnation = text.extracting(first: length).hexadecimalValue()
    else { return nil }
    let json = text.extracting(length + 1..<text.count)
    guard UTF8StreamValidator.isValid(json), (try? JSONValidator.validate(json)) != nil,
      let object = JSONObject(json)
    else { return nil }
    var strings: [String: String] = [:]
    var numbers: [String: Int64] = [:]
    var variables: [String: String]?
    for member in object.members {
      let value = json.extracting(member.value)
      guard let name = JSONString.text(of: json.extracting(member.name)) else { return nil }
      switch name {
      case "profile", "owner": strings[name] = JSONString.text(of: value)
      case "time", "idle_milliseconds": numbers[name] = value.decimalValue().map(Int64.init)
      case "variables": variables = Self.strings(value)
      default: break
      }
    }
    guard let profile = strings["profile"], let owner = strings["owner"], let variables, let time = numbers["time"],
      let idle = numbers["idle_milliseconds"]
    else { return nil }
    self.init(
      incarnation: incarnation, profile: profile, variables: variables, owner: owner, time: time,
      idleLimit: .milliseconds(idle))
  }

  private static func strings(_ text: Span<UInt8>) -> [String: String]? {
    guard let object = JSONObject(text) else { return nil }
    var strings: [String: String] = [:]
    for member in object.members {
      guard let name = JSONString.text(of: text.extracting(member.name)),
        let value = JSONString.text(of: text.extracting(member.value))
      else { return nil }
      strings[name] = value
    }
    return strings
  }
}

extension JSONString {
  fileprivate static func text(of token: Span<UInt8>) -> String? {
    content(of: token).map { String(decoding: $0, as: UTF8.self) }
  }
}
