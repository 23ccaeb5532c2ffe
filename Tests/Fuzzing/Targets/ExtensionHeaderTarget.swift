import ByteStreams
import WebSocketCodec

/// A client's `Sec-WebSocket-Extensions`: the target compares the server's parser with a simple parser, and checks the
/// response.
enum ExtensionHeaderTarget {
  static func run(_ input: Span<UInt8>) throws(Finding) {
    let parsed = ExtensionElement.parse(input)
    var reference = ReferenceExtensions([UInt8](copying: input))
    let expected = reference.list()
    let isSame =
      switch (parsed, expected) {
      case (nil, nil): true
      case (let parsed?, let expected?): parsed.map(describe) == expected
      default: false
      }
    try require(isSame, "it reads \(String(describing: parsed)), the reference \(String(describing: expected))")

    var output = ByteQueue()
    let agreed = ServerHandshake.accept(key: "", extensions: input.text(), into: &output)
    guard let agreed else { return }
    try require(
      parsed?.contains { $0.name == "permessage-deflate" } == true, "agreed on an extension that was not offered")
    let windows = [agreed.inboundWindowBits, agreed.outboundWindowBits]
    try require(windows.allSatisfy { (8...15).contains($0) }, "agreed on windows \(windows)")
    // Stops the program if zlib does not support the settings.
    _ = WebSocketConnection(role: .server, compression: agreed)
  }

  private static func describe(_ element: ExtensionElement) -> [[String?]] {
    [[element.name]] + element.parameters.map { [$0.name, $0.value] }
  }
}

/// The grammar of RFC 6455 §9.1 with the list rule of RFC 9110 §5.6.1, read character by character.
private struct ReferenceExtensions {
  private let bytes: [UInt8]
  private var index = 0

  init(_ bytes: [UInt8]) { self.bytes = bytes }

  private var next: UInt8? { index < bytes.count ? bytes[index] : nil }

  mutating func list() -> [[[String?]]]? {
    var elements: [[[String?]]] = []
    while true {
      skip(" \t,")
      guard next != nil else { return elements }
      guard let element = element() else { return nil }
      elements.append(element)
      guard next == nil || next == UInt8(ascii: ",") else { return nil }
    }
  }

  private mutating func skip(_ characters: String) {
    while let next, characters.utf8.contains(next) { index += 1 }
  }

  private mutating func element() -> [[String?]]? {
    guard let name = token() else { return nil }
    var element: [[String?]] = [[name]]
    while next == UInt8(ascii: ";") {
      index += 1
      skip(" \t")
      guard let parameter = token() else { return nil }
      var value: String?
      if next == UInt8(ascii: "=") {
        index += 1
        skip(" \t")
        value = next == UInt8(ascii: "\"") ? quoted() : token()
        if value == nil { return nil }
      }
      element.append([parameter, value])
    }
    return element
  }

  private mutating func token() -> String? {
    var token: [UInt8] = []
    while let next, isToken(next) {
      token.append(next)
      index += 1
    }
    skip(" \t")
    return token.isEmpty ? nil : String(decoding: token, as: UTF8.self)
  }

  private mutating func quoted() -> String? {
    var text: [UInt8] = []
    index += 1
    while let character = next {
      index += 1
      if character == UInt8(ascii: "\"") {
        skip(" \t")
        return text.isEmpty ? nil : String(decoding: text, as: UTF8.self)
      }
      var content = character
      if character == UInt8(ascii: "\\") {
        guard let escaped = next else { return nil }
        content = escaped
        index += 1
      }
      guard isToken(content) else { return nil }
      text.append(content)
    }
    return nil
  }
}
