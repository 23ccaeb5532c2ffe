import ByteStreams
import TestSupport
import Testing

@testable import UpstreamSession

@Suite struct OverlapFilterTests {
  private static let old = Generation(1)
  private static let new = Generation(2)

  /// Messages by number; `o5` is message 5 from the older connection, `n5` from the newer, `o!`/`n!` its end.
  private func passed(_ script: String) -> String {
    var filter = OverlapFilter(older: Self.old, newer: Self.new)
    var result: [String] = []
    for word in script.split(separator: " ") {
      let generation = word.first == "o" ? Self.old : Self.new
      if word.dropFirst() == "!" {
        _ = filter.ended(generation)
      } else if let digest = UInt64(word.dropFirst()), filter.passes(digest, from: generation) {
        result.append(String(word.dropFirst()))
      }
    }
    return result.joined(separator: " ") + (filter.isOver ? " over" : "")
  }

  @Test(arguments: [
    ("o1 o2 n2 o3 n3 n4 o4", "1 2 3 4"),
    ("o1 n2 n3 o2 o3 o4 n4", "1 2 3 4"),
    // The newer lags behind when the older ends.
    ("o1 o2 o3 n1 o! n2 n3 n4 n5", "1 2 3 4 5 over"),
    // The newer was ahead, and nothing is left to come twice.
    ("n1 n2 o1 o2 o!", "1 2 over"),
    // What came before the newer heard anything is forgotten at its first message that both have.
    ("o1 o2 o3 n3 o! n1", "1 2 3 1 over"),
    // Messages for one connection only pass, whatever surrounds them.
    ("o1 n90 n1 n2 o91 o2 o3 n3", "1 90 2 91 3"),
    ("o1 o! n7 n1", "1 7 1 over"),
    // Equal messages: as often as the connection brought them that brought more.
    ("o5 n5 o5 n5 o5 n5", "5 5 5"),
    ("n5 n5 o5 o5 o5", "5 5 5"),
    ("o1 n! o2 o2", "1 2 2 over"),
  ])
  func passesOnOnceWhatBothBring(script: String, expected: String) {
    #expect(passed(script) == expected)
  }

  @Test func tellsWhichConnectionIsLeft() {
    var filter = OverlapFilter(older: Self.old, newer: Self.new)
    #expect(filter.ended(Generation(7)) == nil)
    #expect(filter.ended(Self.old) == Self.new)
    #expect(filter.ended(Self.old) == Self.new)
    #expect(filter.ended(Self.new) == nil)
  }

  @Test func remembersNoMoreThanItsLimit() {
    var filter = OverlapFilter(older: Self.old, newer: Self.new)
    for number in 0...UInt64(OverlapFilter.limit) { _ = filter.passes(number, from: Self.old) }
    let first = filter.passes(0, from: Self.new)
    let second = filter.passes(1, from: Self.new)
    #expect(first && !second)
  }

  /// One stream, two readers: each begins and ends somewhere and is read in turns of any length. Whatever the turns, a reader
  /// of both gets every message once.
  @Test func losesAndDoublesNothingHoweverTheTwoAreRead() {
    for seed in 0..<2_000 as Range<UInt64> {
      var random = SeededGenerator(seed: seed)
      let total = 60 as UInt64
      let begin = UInt64.random(in: 0...20, using: &random)
      let end = UInt64.random(in: 30...50, using: &random)
      var filter = OverlapFilter(older: Self.old, newer: Self.new)
      var older = 0 as UInt64
      var newer = begin
      var got: [UInt64] = []
      while older < end || newer < total {
        if older < end, Bool.random(using: &random) {
          if filter.passes(older, from: Self.old) { got.append(older) }
          older += 1
          if older == end { _ = filter.ended(Self.old) }
        } else if newer < total {
          if filter.passes(newer, from: Self.new) { got.append(newer) }
          newer += 1
        }
      }
      #expect(got.sorted() == Array(0..<total), "seed \(seed)")
    }
  }

  @Test func digestsTellTextFromBinary() {
    let bytes: [UInt8] = [1, 2, 3]
    #expect(
      OverlapFilter.digest(of: bytes.span, isText: true) == OverlapFilter.digest(of: bytes.span, isText: true))
    #expect(
      OverlapFilter.digest(of: bytes.span, isText: true) != OverlapFilter.digest(of: bytes.span, isText: false))
  }
}
