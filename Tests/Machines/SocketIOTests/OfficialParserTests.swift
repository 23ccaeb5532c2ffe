import ByteStreams
import Foundation
import TestSupport
import Testing

@testable import SocketIO

/// The official JavaScript parser as an oracle: `scripts/setup test` installs Debian's package of version 4.2.1.
@Suite struct OfficialParserTests {
  /// The fields of a packet, as our parser reads them.
  private struct Reading: Encodable {
    let type: UInt8
    let namespace: String
    let id: UInt64?
    let attachments: Int
    let data: String
  }

  private struct Judged: Encodable {
    let text: String
    /// nil if our parser refuses the packet.
    let reading: Reading?
  }

  private struct Judgement: Decodable {
    let accepted: Bool
    let same: Bool
  }

  private struct Generated: Decodable {
    let text: String
    let attachments: [String]
    let type: UInt8
    let namespace: String
    let id: UInt64?
    let data: String
  }

  private static func reading(_ text: String) -> Reading? {
    guard let parsed = try? ParsedPacket(text) else { return nil }
    return Reading(
      type: parsed.packet.kind.rawValue, namespace: parsed.namespace.isEmpty ? "/" : parsed.namespace,
      id: parsed.packet.id, attachments: parsed.packet.attachments, data: parsed.data)
  }

  // MARK: The oracle

  private static func oracle(_ arguments: [String], input: Data = Data()) throws -> [Data] {
    let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent()
    let file = FileManager.default.temporaryDirectory.appendingPathComponent("socket.io-\(UUID()).jsonl")
    try input.write(to: file)
    defer { try? FileManager.default.removeItem(at: file) }
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
    process.arguments = ["node", root.appendingPathComponent("Conformance/socket.io-oracle.js").path] + arguments
    process.standardInput = try FileHandle(forReadingFrom: file)
    let output = Pipe()
    process.standardOutput = output
    try process.run()
    let lines = output.fileHandleForReading.readDataToEndOfFile().split(separator: UInt8(ascii: "\n"))
    process.waitUntilExit()
    try #require(process.terminationStatus == 0, "node with socket.io-parser is missing: run scripts/setup test")
    return lines
  }

  private static func judge(_ packets: [Judged]) throws -> [Judgement] {
    var input = Data()
    for packet in packets { input += try JSONEncoder().encode(packet) + [UInt8(ascii: "\n")] }
    let lines = try oracle(["judge"], input: input)
    try #require(lines.count == packets.count)
    return try lines.map { try JSONDecoder().decode(Judgement.self, from: $0) }
  }

  // MARK: Random packets

  @Test func readsThePacketsOfTheOfficialEncoder() throws {
    let lines = try Self.oracle(["generate", "2000", "7"])
    try #require(lines.count == 2_000)
    var withAttachments = 0
    for line in lines {
      let packet = try JSONDecoder().decode(Generated.self, from: line)
      let read = try #require(Self.reading(packet.text), "\(packet.text)")
      #expect(read.namespace == packet.namespace && read.id == packet.id && read.data == packet.data, "\(packet.text)")
      // For a packet with attachments, the official encoder chooses the binary type, like our encoder.
      #expect(read.type == packet.type && read.attachments == packet.attachments.count, "\(packet.text)")
      if read.attachments > 0 { withAttachments += 1 }
    }
    #expect(withAttachments > 200)
  }

  @Test func theOfficialParserReadsOurPackets() throws {
    var random = SeededGenerator(seed: 11)
    let packets = (0..<2_000).map { _ in Self.written(&random) }
    let judgements = try Self.judge(packets)
    for (packet, judgement) in zip(packets, judgements) {
      #expect(judgement.accepted && judgement.same, "\(packet.text)")
    }
  }

  private static func written(_ random: inout SeededGenerator) -> Judged {
    let namespace = ["/", "/admin", "/é", "/x-1"].randomElement(using: &random)!
    var attachments = 0
    let count = Int.random(in: 0...3, using: &random)
    let values = (0..<count).map { _ in value(&random, &attachments, depth: 0) }
    let arguments = values.joined(separator: ",")
    let id: UInt64? = Bool.random(using: &random) ? UInt64.random(in: 0...1 << 53, using: &random) : nil
    var output = ByteQueue()
    let name = ["a", "", "\"\\", "é\n", "_placeholder"].randomElement(using: &random)!
    let isEvent = id == nil || Bool.random(using: &random)
    if isEvent {
      SocketIOPacket.writeEvent(
        name: Array(name.utf8).span, arguments: Array(arguments.utf8).span, attachments: attachments,
        namespace: Array(namespace.utf8).span, id: id, into: &output)
    } else {
      SocketIOPacket.writeAcknowledgement(
        id ?? 0, arguments: Array(arguments.utf8).span, attachments: attachments,
        namespace: Array(namespace.utf8).span, into: &output)
    }
    let quoted =
      #""\#(name.replacing(#"\"#, with: #"\\"#).replacing(#"""#, with: #"\""#).replacing("\n", with: #"\n"#))""#
    let all = isEvent ? [quoted] + (arguments.isEmpty ? [] : [arguments]) : [arguments]
    let type: UInt8 = (isEvent ? 2 : 3) + (attachments > 0 ? 3 : 0)
    let reading = Reading(
      type: type, namespace: namespace, id: id, attachments: attachments, data: "[\(all.joined(separator: ","))]")
    return Judged(text: output.bytes.text(), reading: reading)
  }

  private static func value(_ random: inout SeededGenerator, _ attachments: inout Int, depth: Int) -> String {
    switch Int.random(in: 0...(depth < 3 ? 6 : 4), using: &random) {
    case 0: return ["1", "-0.5", "1e3", "0"].randomElement(using: &random)!
    case 1: return ["true", "null", "false"].randomElement(using: &random)!
    case 2: return [#""a""#, #""\"]""#, #""é😀""#, #""\u0041\\""#].randomElement(using: &random)!
    case 3 where attachments < 10:
      attachments += 1
      return #"{"_placeholder":true,"num":\#(attachments - 1)}"#
    case 3, 4: return "[]"
    case 5:
      return "[\(value(&random, &attachments, depth: depth + 1)), \(value(&random, &attachments, depth: depth + 1))]"
    default: return #"{"x":\#(value(&random, &attachments, depth: depth + 1)),"_y":{}}"#
    }
  }

  // MARK: Mutated packets

  /// Why our parser refuses a packet that the official parser accepts. Our parser accepts no packet that the official
  /// parser refuses.
  private enum Stricter: String, CaseIterable {
    /// The official parser reads text that is empty or begins with whitespace as CONNECT.
    case type
    /// The official parser reads no attachments in `5-`, and one attachment in `5 1-`, `51.0-` and `50x1-`. Our parser
    /// requires digits, and has a limit.
    case attachments
    /// The official parser reads whitespace as digits of an id.
    case whitespace
    /// An event or an acknowledgement without a payload, or an acknowledgement without an id. The protocol requires
    /// both.
    case nothing
    /// More than 19 digits.
    case longID
    /// Placeholders with `-0`, `0.0`, `0.5` or `0e0`, and any placeholder in a packet that announces no attachment.
    case placeholder
  }

  private static func stricter(_ text: String) -> Stricter? {
    let scalars = Array(text.unicodeScalars)
    func isSpace(_ scalar: Unicode.Scalar) -> Bool { scalar.properties.isWhitespace || scalar.value == 0xFEFF }
    guard let first = scalars.first, !isSpace(first) else { return .type }
    do throws(SocketIOViolation) {
      _ = try ParsedPacket(text)
      return nil
    } catch {
      switch error {
      case .invalidAttachmentCount, .tooManyAttachments: return .attachments
      case .longID: return .longID
      case .missingID: return .nothing
      case .invalidPlaceholder: return .placeholder
      case .invalidJSON, .invalidPayload:
        var rest = text.unicodeScalars.dropFirst()
        if let dash = rest.firstIndex(of: "-"), "56".unicodeScalars.contains(first) { rest = rest[dash...].dropFirst() }
        // Without a comma, all of the rest is the namespace.
        if rest.first == "/" { rest = rest.drop { $0 != "," }.dropFirst() }
        rest = rest.drop { ("0"..."9").contains($0) }
        guard let next = rest.first else { return .nothing }
        return isSpace(next) ? .whitespace : nil
      default: return nil
      }
    }
  }

  @Test func mutatedPacketsGetTheVerdictOfTheOfficialParser() throws {
    var random = SeededGenerator(seed: 5)
    let seeds = [
      #"0"#, #"0/admin,{"sid":"x"}"#, #"1/admin,"#, #"2["a",{"b":[1,"c"]}]"#, #"2/admin,12["a"]"#, #"3/a,7[null,1]"#,
      #"4{"message":"no"}"#, #"4"no""#, #"51-["a",{"_placeholder":true,"num":0}]"#,
      #"52-/admin,3["a",{"num":1,"_placeholder":true},[{"_placeholder":true,"num":0}]]"#,
      #"61-15[{"_placeholder":true,"num":0}]"#,
    ]
    let letters = Array("0123456789-/,[]{}\":_ .eE+\\uanulltruef\t\u{A0}é".unicodeScalars)
    // One packet for each difference. The mutations produce more by chance.
    let known = [
      "", " 0", "5-[\"a\"]", "51.0-[\"a\"]", "2 [\"a\"]", "2", "3[]", "212345678901234567890[\"a\"]",
      #"50-["a",{"_placeholder":true,"num":0}]"#, #"51-["a",{"_placeholder":true,"num":-0}]"#,
      #"51-["a",{"_placeholder":true,"num":0.5}]"#,
    ]
    let mutated = (0..<10_000).map { _ in
      var scalars = Array(seeds.randomElement(using: &random)!.unicodeScalars)
      for _ in 0..<Int.random(in: 1...3, using: &random) {
        let place = Int.random(in: 0...scalars.count, using: &random)
        switch Int.random(in: 0...3, using: &random) {
        case 0 where place < scalars.count: scalars.remove(at: place)
        case 1 where place < scalars.count: scalars[place] = letters.randomElement(using: &random)!
        case 2 where place < scalars.count: scalars.insert(scalars[place], at: place)
        default: scalars.insert(letters.randomElement(using: &random)!, at: place)
        }
      }
      var text = ""
      text.unicodeScalars.append(contentsOf: scalars)
      return text
    }
    let packets = (known + mutated).map { Judged(text: $0, reading: Self.reading($0)) }
    var stricter: Set<Stricter> = []
    var accepted = 0
    for (packet, judgement) in zip(packets, try Self.judge(packets)) {
      let shown = String(reflecting: packet.text)
      if packet.reading != nil {
        accepted += 1
        #expect(judgement.accepted, "our parser accepts \(shown)")
        #expect(judgement.same, "our parser reads \(shown) differently")
      } else if judgement.accepted {
        let reason = Self.stricter(packet.text)
        #expect(reason != nil, "our parser refuses \(shown)")
        if let reason { stricter.insert(reason) }
      }
    }
    #expect(accepted > 1_000 && accepted < 9_000)
    // Every listed difference occurs.
    #expect(stricter == Set(Stricter.allCases))
  }
}
