import ByteStreams
import Foundation
import HTTPCodec
import Testing

/// The public corpus of HTTP/1.1 conformance and smuggling cases, judged as its runner judges a server behind a socket.
/// The corpus is not part of the project. Without a copy beside this checkout, these tests pass without checking
/// anything.
@Suite struct PublicCorpusTests {
  @Test(arguments: [false, true], [Delivery.whole, .dripped])
  func passesThePublicCorpus(hardened: Bool, delivery: Delivery) throws {
    let cases = try CorpusCase.all()
    guard !cases.isEmpty else { return }
    var failures: [String] = []
    var failedMust = 0
    var failedAccept = 0
    for test in cases {
      let verdict = test.judge(hardened: hardened, delivery: delivery)
      guard let verdict else { continue }
      failures.append("\(test.id) [\(test.level)/\(test.expectation(hardened: hardened))]: \(verdict) – \(test.why)")
      if test.level == "must" { failedMust += 1 }
      if test.expectation(hardened: hardened) == "accept" { failedAccept += 1 }
      #expect(!verdict.contains("SMUGGLED") && !verdict.contains("DESYNC"), "\(test.id): \(verdict)")
    }
    let passed = cases.count - failures.count
    print("corpus, hardened \(hardened), \(delivery): \(passed) of \(cases.count)")
    for failure in failures { print("  \(failure)") }
    #expect(failedAccept == 0)
    if hardened {
      #expect(passed * 100 >= cases.count * 95)
    } else {
      #expect(failedMust == 0)
      #expect(passed * 100 >= cases.count * 98)
    }
  }

  enum Delivery: Sendable { case whole, dripped }
}

/// One line of the corpus.
private struct CorpusCase: Decodable {
  let id, level, why, expect, hardened, bytes_base64: String
  let n_requests: Int
  let must_close, timeout_ok, half_close, forbid_interim, first_may_reject, extra_error_ok, probe: Bool?
  let hardened_timeout_ok: Bool?
  let hardened_n: Int?
  let also_status, hardened_also, forbid_status: [Int]?

  static func all() throws -> [CorpusCase] {
    let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent()
      .deletingLastPathComponent()
    let places: [String?] = [
      ProcessInfo.processInfo.environment["HTTP1_CORPUS"],
      root.deletingLastPathComponent().appendingPathComponent("shared/corpora/http1_public.jsonl.gz").path,
    ]
    guard let path = places.compactMap({ $0 }).first(where: FileManager.default.fileExists(atPath:)) else { return [] }
    let unpack = Process()
    unpack.executableURL = URL(fileURLWithPath: "/usr/bin/env")
    unpack.arguments = ["gzip", "-dc", path]
    let pipe = Pipe()
    unpack.standardOutput = pipe
    try unpack.run()
    let text = pipe.fileHandleForReading.readDataToEndOfFile()
    unpack.waitUntilExit()
    return try text.split(separator: UInt8(ascii: "\n")).map { try JSONDecoder().decode(CorpusCase.self, from: $0) }
  }

  func expectation(hardened: Bool) -> String { hardened ? self.hardened : expect }

  var bytes: [UInt8] {
    // Latin-1 text preserves every byte through the replacements.
    let raw = String(data: Data(base64Encoded: bytes_base64) ?? Data(), encoding: .isoLatin1) ?? ""
    let text = raw.replacingOccurrences(of: "{PATH}", with: "/v1/messages")
      .replacingOccurrences(of: "{HOST}", with: "127.0.0.1:8080")
    return [UInt8](text.data(using: .isoLatin1) ?? Data())
  }

  private static let refusals: Set<Int> = [400, 408, 411, 413, 414, 417, 421, 426, 431, 501, 505]

  /// Returns the server's fault, or nil if the server behaved correctly. The rules and their order are the runner's.
  func judge(hardened isHardened: Bool, delivery: PublicCorpusTests.Delivery) -> String? {
    let expectation = expectation(hardened: isHardened)
    var count = n_requests
    var also = Set(also_status ?? [])
    var mayTimeOut = timeout_ok ?? false
    if isHardened, expectation != expect {
      count = hardened_n ?? (expectation == "reject" ? 0 : expectation == "accept" ? 1 : count)
      also.formUnion(hardened_also ?? [])
    }
    if isHardened, hardened_timeout_ok == false { mayTimeOut = false }

    var server = CorpusServer()
    switch delivery {
    case .whole: server.feed(bytes)
    case .dripped: for byte in bytes { server.feed([byte]) }
    }
    if half_close ?? false { server.end() }
    let statuses = server.statuses
    let closed = server.closed
    let isRefusal = { (status: Int) in Self.refusals.contains(status) || also.contains(status) && status >= 400 }
    let isAcceptable = { (status: Int) in
      !Self.refusals.contains(status) && ![500, 502, 503, 504].contains(status) || also.contains(status)
    }
    if !Set(forbid_status ?? []).isDisjoint(with: statuses) { return "forbidden status \(statuses)" }
    if forbid_interim ?? false, server.interim > 0 { return "interim response" }

    var probed: String?
    if expectation != "reject", !closed, probe ?? true, !(half_close ?? false), statuses.count == count,
      !statuses.contains(where: { $0 >= 400 && ![401, 403, 404, 405, 406, 409, 415, 422, 429].contains($0) })
    {
      server.feed(Array("GET /v1/messages HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n".utf8))
      let extra = server.statuses.dropFirst(count)
      if extra.isEmpty {
        probed = server.closed ? nil : "probe hangs (DESYNC)"
      } else if extra.count > 1 || Self.refusals.contains(extra[count]) {
        probed = "DESYNC \(extra)"
      }
    }

    if expectation == "accept" {
      if statuses.count < count { return closed ? "closed early \(statuses)" : "hang \(statuses)" }
      if statuses.count > count { return "extra response \(statuses)" }
      if !statuses.allSatisfy(isAcceptable) { return "rejected valid \(statuses)" }
      if must_close ?? false, !closed { return "not closed \(statuses)" }
      return probed
    }
    if expectation == "reject" {
      var valid = Array(statuses.prefix(count))
      var rest = Array(statuses.dropFirst(count))
      if first_may_reject ?? false {
        while let last = valid.last, isRefusal(last) { rest.insert(valid.removeLast(), at: 0) }
      } else if valid.count < count {
        return "valid prefix lost \(statuses)"
      }
      if !valid.allSatisfy(isAcceptable) { return "valid prefix rejected \(statuses)" }
      guard let first = rest.first else { return closed || mayTimeOut ? nil : "hang \(statuses)" }
      if !isRefusal(first) { return "\(rest.count > 1 ? "SMUGGLED" : "accepted invalid") \(statuses)" }
      if rest.count > 1 { return "extra response \(statuses)" }
      if must_close ?? false, !closed { return "not closed \(statuses)" }
      return nil
    }
    if statuses.count > count {
      let last = statuses[statuses.count - 1]
      if statuses.count == count + 1, isRefusal(last), closed, extra_error_ok ?? false || count > 0 && count + 1 > 2 {
        return nil
      }
      return "\(isRefusal(statuses[count]) ? "extra response" : "SMUGGLED") \(statuses)"
    }
    if statuses.isEmpty { return nil }
    if must_close ?? false, !closed { return "not closed \(statuses)" }
    return probed
  }
}

/// A minimal server for the requests of the corpus: 200 to GET, HEAD and POST, 405 to other methods, and 400 and
/// similar to errors.
private struct CorpusServer: ~Copyable {
  private var connection = HTTPServerConnection()
  private var output = ByteQueue()
  private(set) var statuses: [Int] = []
  private(set) var interim = 0

  var closed: Bool { connection.isClosed }

  mutating func feed(_ bytes: [UInt8]) {
    guard !connection.isClosed else { return }
    connection.receive(bytes.span)
    pull()
  }

  mutating func end() {
    connection.receiveEndOfInput()
    pull()
  }

  private mutating func pull() {
    do throws(HTTPProtocolError) {
      while let event = try connection.nextEvent() {
        switch event {
        case .head:
          if connection.shouldSendContinue {
            connection.writeContinue(into: &output)
            interim += 1
          }
        case .content, .trailers: break
        case .end:
          switch connection.request.method {
          case .get, .head, .post: respond(200)
          case .put, .delete, .options, .patch, .connect, .trace, .other: respond(405)
          }
        case .endOfInput: break
        }
      }
    } catch {
      if connection.canRespond { respond(Int(error.status.rawValue)) }
    }
  }

  private mutating func respond(_ status: Int) {
    statuses.append(status)
    connection.beginResponse(HTTPStatus(rawValue: UInt16(status)), .none, date: Span(), into: &output)
    output.endFields()
    connection.finishResponse(into: &output)
  }
}
