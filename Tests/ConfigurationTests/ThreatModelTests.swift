import Foundation
import Testing
import Upstream

@testable import Configuration

/// The threat model must name only settings and tests that exist.
@Suite struct ThreatModelTests {
  private let model: Document
  init() throws { model = try Document("threat-model.md") }

  @Test func everySettingThatThePageNamesExists() throws {
    let settings = Set(Setting.all.map(\.path))
    let sections = Set(settings.map { $0.prefix { $0 != "." } })
    let named = model.words.filter { word in
      sections.contains(word.prefix { $0 != "." }) && word.contains(".") && !word.contains(" ")
    }
    #expect(named.count > 40)
    #expect(named.filter { !settings.contains($0) } == [])
  }

  /// Numbers and sizes that are not totals over clients: limits of one request, connection, message or session, or of
  /// the gateway's own work.
  private static let ofOne: Set<String> = [
    "http.request_line_bytes", "http.head_bytes", "http.fields", "http.empty_lines", "http.body_bytes",
    "http.inflation_ratio", "http.batch_messages", "http.chunk_extension_bytes", "http.chunk_overhead_bytes",
    "http.trailer_bytes",
    "http.trailers", "http.pipelined_bytes", "http.body_minimum_rate", "http.write_minimum_rate", "http.linger_bytes",
    "http.requests_per_connection", "limits.principal.held", "limits.address.held", "upstream.message_bytes",
    "upstream.fragments", "upstream.inflation_ratio", "upstream.compression.level",
    "upstream.compression.window_bits", "upstream.compression.memory_level", "upstream.compression.threshold",
    "upstream.socketio.attachments", "upstream.reconnect.factor", "upstream.reconnect.maximum_attempts",
    "upstream.dials.per_second", "upstream.dials.burst", "upstream.queue.max_attempts",
    "upstream.queue.confirm_messages", "upstream.queue.rate", "upstream.queue.burst", "upstream.queue.high_water",
    "upstream.queue.low_water", "delivery.limit", "delivery.maximum_limit", "delivery.answer_bytes",
    "delivery.maximum_answer_bytes",
  ]

  @Test func everyTotalHasAShareAndATest() throws {
    let section = try model.section("### Totals")
    let rows = Document.rows(in: section)
    #expect(rows.count >= 8 && rows.allSatisfy { $0.count == 5 && $0[4].contains("`") })
    let limits = Setting.all.filter { setting in
      ["a number from", "a size from"].contains { setting.expectation.hasPrefix($0) }
    }.map(\.path)
    #expect(limits.count > 40)
    // Add a new limit to the table, to the text below it, or to the list above.
    #expect(limits.filter { !section.contains("`\($0)`") && !Self.ofOne.contains($0) } == [])
    #expect(Self.ofOne.subtracting(limits) == [])
    #expect(Self.ofOne.filter { section.contains("`\($0)`") } == [])
  }

  @Test func everyTestThatThePageNamesExists() throws {
    let isName = { (word: String) in word.allSatisfy { $0.isLetter || $0.isNumber || $0 == "_" } }
    let named = model.words.filter { isName($0) && $0.count > 4 && $0 != "verify" }
    #expect(named.count > 60)
    #expect(try Document.missingTests(among: named) == [])
  }
}
