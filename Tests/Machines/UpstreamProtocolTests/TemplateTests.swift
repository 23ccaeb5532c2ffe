import ByteStreams
import Testing

@testable import UpstreamProtocol

@Suite struct TemplateTests {
  private func render(
    _ text: String, in place: Template.Context = .opening, environment: [String: String] = [:],
    _ change: (inout TemplateValues) -> Void = { _ in }
  ) throws -> String {
    let template = try Template(text, in: place, environment: environment)
    var values = TemplateValues()
    change(&values)
    var output = ByteQueue()
    try template.render(values, into: &output)
    return output.bytes.text()
  }

  @Test func fillsEveryPlaceholder() throws {
    #expect(try render(#"{"a":1}"#) == #"{"a":1}"#)
    #expect(try render("${env:TOKEN}!", environment: ["TOKEN": "${now}"]) == "${now}!", "a secret is no template")
    #expect(try render("a${file:/t}b") { $0.files["/t"] = Array("T".utf8) } == "aTb")
    #expect(try render("from ${cursor}") { $0.cursor = Array("17".utf8) } == "from 17")
    #expect(try render("${now} ${now:seconds}") { $0.now = 1_700_000_000_123 } == "1700000000123 1700000000")
    #expect(try render("${counter}", in: .heartbeat) { $0.counter = 3 } == "3")
    #expect(try render("$${now} $ {x}") == "${now} $ {x}")
  }

  /// The token is copied unchanged, even if it is a number that a double cannot represent.
  @Test func copiesARawValueUnchanged() throws {
    func reply(_ message: String) throws -> String {
      try render(#"{"pong":${raw:/ping}}"#, in: .reply) { $0.triggeringMessage = Array(message.utf8) }
    }
    #expect(try reply(#"{"ping":123}"#) == #"{"pong":123}"#)
    #expect(try reply(#"{ "ping" : 9007199254740993.10 }"#) == #"{"pong":9007199254740993.10}"#)
    #expect(try reply(#"{"ping":"a\u0022b"}"#) == #"{"pong":"a\u0022b"}"#)
    #expect(throws: TemplateError.self) { try reply(#"{"pong":1}"#) }
    #expect(throws: TemplateError.self) { try reply(#"{"ping":nonsense}"#) }
  }

  /// The example in obs-websocket's own protocol description ("Creating an authentication string").
  @Test func computesTheResponseToTheChallengeOfOBS() throws {
    let text =
      "${sha256_base64:${sha256_base64:${env:PASSWORD}${string:/d/authentication/salt}}${string:/d/authentication/challenge}}"
    let hello =
      #"{"op":0,"d":{"authentication":{"challenge":"+IxH4CnCiqpX1rM9scsNynZzbOe4KhDeYcTNS3PDaeY=","salt":"lM1GncleQOaCu9lT1yeUZhFYnqhsLLP1G5lAGo3ixaI="}}}"#
    let response = try render(text, environment: ["PASSWORD": "supersecretpassword"]) {
      $0.triggeringMessage = Array(hello.utf8)
    }
    #expect(response == "1Ct943GAT+6YQUUX47Ia/ncufilbe6+oD6lY+5kaCu4=")
  }

  /// RFC 4231 §4.3, and RFC 4616 §4.
  @Test func computesSignaturesAndBase64() throws {
    let key = ["KEY": "Jefe"]
    let text = "what do ya want for nothing?"
    let digest = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    #expect(try render("${hmac_sha256_hex:${env:KEY}:\(text)}", environment: key) == digest)
    #expect(
      try render("<${hmac_sha256_base64:${file:/k}:what ${env:KEY}${now}}>", environment: key) {
        $0.files["/k"] = Array("Jefe".utf8)
        $0.now = 7
      } == "<NbzjUUt+qPOstyRTyOfCEDZfsA+eAEBXhNQjoi4GK88=>")
    #expect(
      try render("${base64:\0tim\0${env:KEY}}", environment: ["KEY": "tanstaaftanstaaf"])
        == "AHRpbQB0YW5zdGFhZnRhbnN0YWFm")
    // Base64 may contain bytes that are not UTF-8.
    #expect(try render("${base64:${file:/k}}") { $0.files["/k"] = [0xFF, 0xFE] } == "//4=")
    let signed = try Template("${hmac_sha256_hex:${file:/k}:${file:/t}${credential}}", in: .opening, environment: [:])
    #expect(signed.files == ["/k", "/t"] && signed.usesCredential)
    for size in [0, 513] {
      #expect(throws: TemplateError.key) {
        try render("${hmac_sha256_hex:${file:/k}:a}") { $0.files["/k"] = [UInt8](repeating: 1, count: size) }
      }
    }
  }

  /// An upstream may repeat an encoded secret in a message for operators.
  @Test func listsItsEncodedTexts() throws {
    var values = TemplateValues()
    values.files["/key"] = Array("secret".utf8)
    values.now = 5
    let source =
      "a ${base64:user:${file:/key}} ${json:${hmac_sha256_hex:${file:/key}:${now}}} ${sha256_base64:${base64:x}} ${now}"
    let message = try Template(source, in: .opening, environment: [:])
    let text = String(decoding: try message.rendered(with: values), as: UTF8.self)
    let encoded = message.encodedTexts(with: values).map { String(decoding: $0, as: UTF8.self) }
    #expect(encoded.count == 4 && encoded[0] == "dXNlcjpzZWNyZXQ=" && encoded[3] == "eA==")
    #expect(text == "a \(encoded[0]) \(encoded[1]) \(encoded[2]) 5")
    // A text without its values is left out.
    let other = try Template("${base64:${credential}}", in: .opening, environment: [:])
    #expect(other.encodedTexts(with: values).isEmpty)
  }

  @Test func aUUIDIsTheSameInOneMessage() throws {
    let texts = try (0..<4).map { number in
      try render("${uuid} ${base64:${uuid}}", in: number < 2 ? .heartbeat : .field) {
        ($0.random, $0.uuids) = (UInt128(number / 2), UInt64(number % 2))
      }
    }
    #expect(Set(texts).count == 4)
    for text in texts {
      let parts = text.split(separator: " ").map(String.init)
      #expect(Base64.encode(Array(parts[0].utf8).span) == parts[1])
      #expect(parts[0].count == 36 && Array(parts[0])[14] == "4" && "89ab".contains(Array(parts[0])[19]))
    }
  }

  @Test func escapesForJSON() throws {
    let secret = "a\"b\\c\n"
    #expect(try render(#"{"t":"${json:x${env:S}}"}"#, environment: ["S": secret]) == #"{"t":"xa\"b\\c\n"}"#)
  }

  @Test func rendersTheWholeTemplateOrNothing() throws {
    let template = try Template("abc ${cursor}", in: .opening, environment: [:])
    var output = ByteQueue()
    output.append("before ")
    #expect(throws: TemplateError.noCursor) { try template.render(TemplateValues(), into: &output) }
    #expect(output.bytes.text() == "before ")
    let binary = try Template("${file:/b}", in: .opening, environment: [:])
    var values = TemplateValues()
    values.files["/b"] = [0xFF]
    #expect(throws: TemplateError.notUTF8) { try binary.render(values, into: &output) }
  }

  @Test func listsItsFilesAndPlaceholders() throws {
    let template = try Template("${json:${file:/a}${raw:/x}}${file:/b}", in: .reply, environment: [:])
    #expect(template.files == ["/a", "/b"])
    #expect(template.description == "${json:${file:/a}${raw:/x}}${file:/b}")
  }

  @Test(
    arguments: [
      ("${nonsense}", .opening, "is not a placeholder; use"), ("${env:NOPE}", .opening, "variable 'NOPE' is not set"),
      ("${file:}", .opening, "is not a placeholder; use"), ("${now", .opening, "no closing"),
      ("${json:${now}", .opening, "no closing"),
      ("${counter}", .opening, "only in 'upstream.heartbeat.client"),
      ("${uuid}", .value, "only in a message, a header field or a query"),
      ("${sequence}", .field, "only in a message"),
      ("${hmac_sha256_hex:secret:text}", .opening, "needs a key and a text"),
      ("${hmac_sha256_hex:${now}:text}", .opening, "needs a key and a text"),
      ("${hmac_sha256_base64:${file:/k}}", .opening, "needs a key and a text"),
      ("${hmac_sha256_hex:${credential}:a}", .heartbeat, "only in 'upstream.on_open'"),
      ("${hmac_sha256_hex:${file:/k}:a", .opening, "no closing '}'"),
      ("${raw:/a}", .heartbeat, "only in 'upstream.on_open', 'upstream.acknowledge' and"),
      ("${raw:a}", .reply, "must begin with '/'"), ("${cursor}", .value, "only in a message"),
      (String(repeating: "${json:", count: 20), .opening, "deeper than"),
    ] as [(String, Template.Context, String)])
  func reportsTheFault(text: String, place: Template.Context, message: String) {
    do {
      _ = try Template(text, in: place, environment: [:])
      Issue.record("'\(text)' was taken")
    } catch {
      #expect(error.description.contains(message), "\(error)")
    }
  }
}
