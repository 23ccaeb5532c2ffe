import ByteStreams
import TestSupport
import Testing

@testable import Replication

/// A gateway's copy of the list of created sessions.
@Suite struct DefinitionListTests {
  private func definition(_ incarnation: UInt64, _ variables: [String: String] = ["symbol": "BTC"]) -> SessionDefinition
  {
    SessionDefinition(
      incarnation: incarnation, profile: "ticker", variables: variables, owner: "alice", time: 1_700_000_000_000,
      idleLimit: .seconds(600))
  }

  private func notice(_ count: Int, _ name: String, _ incarnation: UInt64, id: String = "f0") -> [UInt8] {
    Array("\(id) \(count) \(name) +".utf8) + definition(incarnation).text
  }

  private func removal(_ count: Int, _ name: String, _ incarnation: UInt64) -> [UInt8] {
    let digits = String(incarnation, radix: 16)
    return Array("f0 \(count) \(name) -4001 \(String(repeating: "0", count: 16 - digits.count))\(digits)".utf8)
  }

  private func page(_ sessions: (String, UInt64)...) -> [(name: [UInt8], text: [UInt8])] {
    [(name: [], text: Array("f0 9".utf8))]
      + sessions.map { (name: Array($0.utf8), text: definition($1).text) }
  }

  private let end = Array("0".utf8)

  /// A list that was read completely.
  private func complete(_ version: String?, _ sessions: (String, UInt64)...) -> DefinitionList {
    var list = DefinitionList(patience: .seconds(6))
    list.subscribed()
    _ = list.takePage()
    list.began(at: version.map { Array($0.utf8) })
    let page = sessions.map { (name: Array($0.0.utf8), text: definition($0.1).text) }
    _ = list.add(page, next: end, now: .zero)
    return list
  }

  @Test func aDefinitionIsWrittenAndReadWhole() {
    let all = definition(0xAB, ["a": "\"\u{1F600}\n", "b": ""])
    #expect(SessionDefinition(all.text.span) == all)
    #expect(
      String(decoding: definition(0xAB).text, as: UTF8.self)
        == #"00000000000000ab {"profile":"ticker","variables":{"symbol":"BTC"},"owner":"alice","time":1700000000000,"idle_milliseconds":600000}"#
    )
    let later = String(decoding: definition(1).text.dropLast(), as: UTF8.self) + #","color":{"x":[1]}}"#
    #expect(SessionDefinition(Array(later.utf8).span) == definition(1))
    #expect(all.storedName("x.y") == "x.y~00000000000000ab")
    #expect(
      SessionDefinition.parts(of: "x.y~00000000000000ab").map { "\($0.name) \($0.incarnation)" }
        == "x.y 00000000000000ab")
    #expect(SessionDefinition.parts(of: "x.y") == nil)
  }

  @Test(arguments: [
    "", "00000000000000ab", "00000000000000ab ", "00000000000000ab {}", "x0000000000000ab {}",
    #"00000000000000ab {"profile":1,"variables":{},"owner":"a","time":1,"idle_milliseconds":1}"#,
    #"00000000000000ab {"profile":"p","variables":{"a":1},"owner":"a","time":1,"idle_milliseconds":1}"#,
    #"00000000000000ab {"profile":"p","variables":{},"owner":"a","time":-1,"idle_milliseconds":1}"#,
    #"00000000000000ab {"profile":"p","variables":{},"owner":"a","time":1}"#,
    #"00000000000000ab {"profile":"p","variables":{},"owner":"a","time":1,"idle_milliseconds":1} "x"#,
  ])
  func aMalformedDefinitionIsRefused(_ text: String) {
    #expect(SessionDefinition(Array(text.utf8).span) == nil)
  }

  @Test func aDefinitionThatIsTooLongIsRefused() {
    let room = SessionDefinition.maximumTextLength - definition(1, ["v": ""]).text.count
    #expect(SessionDefinition(definition(1, ["v": String(repeating: "x", count: room)]).text.span) != nil)
    #expect(SessionDefinition(definition(1, ["v": String(repeating: "x", count: room + 1)]).text.span) == nil)
  }

  @Test func pagesAreReadUntilTheLast() {
    var list = DefinitionList(patience: .seconds(6))
    #expect(list.takePage() == nil)
    list.subscribed()
    let first = list.takePage()
    #expect(first?.cursor == end && first?.isFirst == true)
    #expect(list.takePage() == nil)
    list.began(at: Array("f0 9".utf8))
    #expect(list.add(page(("a", 1)), next: Array("7".utf8), now: .zero).changes == [.defined(name: "a", definition(1))])
    #expect(!list.isComplete)
    let second = list.takePage()
    #expect(second?.cursor == Array("7".utf8) && second?.isFirst == false)
    // A session may be in several pages.
    let last = list.add(page(("a", 1), ("b", 2)) + [(name: Array("c".utf8), text: [1])], next: end, now: .zero)
    #expect(last.changes == [.defined(name: "b", definition(2))] && last.unreadable == ["c"])
    #expect(list.isComplete && list.count == 2)
  }

  @Test func changesAreAppliedInOrder() {
    var list = complete("f0 9", ("a", 1))
    #expect(list.notified(notice(10, "b", 2).span) == [.defined(name: "b", definition(2))])
    #expect(list.notified(notice(10, "b", 2).span) == [])
    #expect(list.notified(removal(11, "a", 1).span) == [.removed(name: "a", definition(1), code: 4001)])
    #expect(list.notified(notice(9, "a", 1).span) == [])
    #expect(list.notified(notice(12, "a", 3).span) == [.defined(name: "a", definition(3))])
    #expect(list.isComplete && list.definition(of: "a") == definition(3))
  }

  @Test func theFirstChangeOfAListHasNoPredecessor() {
    var list = complete(nil)
    #expect(list.isComplete)
    #expect(list.notified(notice(1, "a", 1).span) == [.defined(name: "a", definition(1))])
  }

  @Test func afterAMissingChangeTheListIsReadAgain() {
    var list = complete("f0 9", ("a", 1))
    #expect(list.notified(notice(11, "b", 2).span) == [])
    #expect(!list.isComplete && list.takePage()?.isFirst == true)
    list.began(at: Array("f0 11".utf8))
    // Meanwhile, two changes arrive. The page includes only one of them.
    #expect(list.notified(notice(12, "c", 3).span) == [] && list.notified(removal(13, "a", 1).span) == [])
    let changes = list.add(page(("a", 1), ("b", 2), ("c", 3)), next: end, now: .zero).changes
    #expect(
      changes == [
        .defined(name: "b", definition(2)), .defined(name: "c", definition(3)),
        .removed(name: "a", definition(1), code: 4001),
      ])
    #expect(list.isComplete)
  }

  @Test func anotherListIsReadAgain() {
    var list = complete("f0 9", ("a", 1))
    #expect(list.notified(notice(10, "b", 2, id: "f1").span) == [])
    #expect(!list.isComplete && list.takePage() != nil)
  }

  @Test func aSessionThatRedisHasLostIsKeptForAWhile() {
    var list = complete("f0 9", ("a", 1), ("b", 2))
    list.subscribed()
    list.began(at: Array("f1 1".utf8))
    #expect(list.missing.isEmpty)
    #expect(list.add([], next: end, now: .zero + .seconds(1)).changes == [])
    #expect(Set(list.missing.map(\.name)) == ["a", "b"] && list.missingDefinition(of: "a") == definition(1))
    #expect(list.expire(now: .zero + .seconds(6)) == [] && list.count == 2)
    // The holder of one of the sessions defines it again.
    #expect(list.notified(notice(2, "a", 1, id: "f1").span) == [])
    #expect(list.missing.map(\.name) == ["b"] && list.missingDefinition(of: "a") == nil)
    #expect(list.expire(now: .zero + .seconds(7)) == [.removed(name: "b", definition(2), code: 1000)])
    #expect(list.expire(now: .zero + .seconds(70)) == [] && list.definition(of: "a") == definition(1))
  }

  @Test func aHolderKeepsASessionUntilRedisAcceptsIt() {
    var list = complete("f0 9", ("a", 1), ("b", 2))
    list.subscribed()
    _ = list.add([], next: end, now: .zero)
    let changes = list.expire(now: .zero + .seconds(60)) { name, _ in name == "a" }
    #expect(changes == [.removed(name: "b", definition(2), code: 1000)])
    #expect(list.missing.map(\.name) == ["a"])
    // The session was defined again, and Redis has lost it once more.
    _ = list.adopt("a", definition(1), at: nil)
    #expect(list.missing.isEmpty)
    list.subscribed()
    _ = list.add([], next: end, now: .zero + .seconds(60))
    #expect(list.missing.map(\.name) == ["a"])
  }

  @Test func nothingExpiresWhileRedisIsAway() {
    var list = complete("f0 9", ("a", 1))
    list.subscribed()
    _ = list.add([], next: end, now: .zero)
    list.disconnected()
    #expect(list.expire(now: .zero + .seconds(60)) == [] && list.count == 1 && !list.isComplete)
    #expect(list.notified(notice(10, "b", 2).span) == [])
  }

  @Test func theChangesOfThisGatewayApplyAtOnce() {
    var list = complete("f0 9")
    #expect(list.adopt("a", definition(1), at: Array("f0 10".utf8)) == [.defined(name: "a", definition(1))])
    #expect(list.notified(notice(10, "a", 1).span) == [])
    #expect(
      list.adopt(removalOf: "a", definition(1), code: 1001, at: Array("f0 11".utf8))
        == [.removed(name: "a", definition(1), code: 1001)])
    #expect(list.notified(removal(11, "a", 1).span) == [])
    // These notifications arrive before the replies to this gateway's changes. They show that the session was deleted
    // and created again.
    #expect(list.notified(notice(12, "a", 2).span).count == 1 && list.notified(removal(13, "a", 2).span).count == 1)
    #expect(list.notified(notice(14, "a", 3).span).count == 1)
    #expect(list.adopt("a", definition(2), at: Array("f0 12".utf8)) == [])
    #expect(list.adopt(removalOf: "a", definition(2), code: 1000, at: Array("f0 13".utf8)) == [])
    #expect(list.adopt(removalOf: "a", definition(2), code: 1000, at: nil) == [])
    #expect(list.definition(of: "a") == definition(3))
  }

  @Test func aNotificationOfARemovalDoesNotEndTheNextSessionOfTheName() {
    // This gateway defines a session before it is notified that the previous session of this name was removed.
    var list = complete("f0 9", ("a", 1))
    let changes: [DefinitionList.Change] = [
      .removed(name: "a", definition(1), code: 1000), .defined(name: "a", definition(2)),
    ]
    #expect(list.adopt("a", definition(2), at: Array("f0 11".utf8)) == changes)
    #expect(list.notified(removal(10, "a", 1).span) == [] && list.notified(notice(11, "a", 2).span) == [])
    // A page contains the new session.
    list = complete("f0 9", ("a", 1))
    list.subscribed()
    list.began(at: Array("f0 9".utf8))
    #expect(list.notified(removal(10, "a", 1).span) == [] && list.notified(notice(11, "a", 2).span) == [])
    #expect(list.add(page(("a", 2)), next: end, now: .zero).changes == changes)
    #expect(list.definition(of: "a") == definition(2) && list.isComplete)
  }

  /// The replies to this gateway's own changes arrived before the notifications.
  @Test func lateNotificationsDoNotUndoTheChangesOfThisGateway() {
    var list = complete("f0 6")
    var changes = list.adopt("a", definition(1), at: Array("f0 7".utf8))
    changes += list.adopt(removalOf: "a", definition(1), code: 4001, at: Array("f0 8".utf8))
    changes += list.adopt("a", definition(2), at: Array("f0 9".utf8))
    #expect(changes.count == 3)
    for late in [notice(7, "a", 1), removal(8, "a", 1), notice(9, "a", 2)] { #expect(list.notified(late.span).isEmpty) }
    #expect(list.definition(of: "a") == definition(2))
    #expect(
      list.notified(removal(10, "a", 2).span) == [.removed(name: "a", definition(2), code: 4001)],
      "the removal is later than the changes of this gateway")
    _ = list.adopt("b", definition(3), at: Array("f0 12".utf8))
    list.subscribed()
    _ = list.takePage()
    list.began(at: Array("f0 10".utf8))
    _ = list.add(page(("b", 3)), next: end, now: .zero)
    #expect(list.notified(notice(11, "b", 4).span).isEmpty && list.definition(of: "b") == definition(3))
    // The session was created after the page that would contain it was read.
    var late = DefinitionList(patience: .seconds(6))
    late.subscribed()
    _ = late.takePage()
    late.began(at: Array("f0 6".utf8))
    _ = late.notified(notice(7, "c", 5).span)
    _ = late.adopt("c", definition(5), at: Array("f0 8".utf8))
    _ = late.add(page(("a", 1)), next: end, now: .zero)
    #expect(late.isComplete && late.missing.isEmpty && late.expire(now: .zero + .seconds(60)).isEmpty)
  }

  private enum Way: CaseIterable {
    case notified, own, ownUnknownVersion
  }

  private func remove(_ name: String, _ incarnation: UInt64, at count: Int, from list: inout DefinitionList, _ way: Way)
  {
    let version = way == .own ? Array("f0 \(count)".utf8) : nil
    let changes =
      way == .notified
      ? list.notified(removal(count, name, incarnation).span)
      : list.adopt(removalOf: name, definition(incarnation), code: 4001, at: version)
    #expect(changes == [.removed(name: name, definition(incarnation), code: 4001)])
  }

  /// The new primary lacks the removal.
  @Test(arguments: Way.allCases) private func aFailoverRestoresNoRemovedSession(_ way: Way) {
    var list = complete("f0 9", ("a", 1), ("b", 2))
    remove("a", 1, at: 10, from: &list, way)
    list.disconnected()
    list.subscribed()
    _ = list.takePage()
    list.began(at: Array("f0 9".utf8))
    #expect(list.add(page(("a", 1), ("b", 2)), next: end, now: .zero).changes.isEmpty)
    #expect(list.isComplete && list.definition(of: "a") == nil && list.missing.isEmpty)
    #expect(list.returned.keys.sorted() == ["a"] && list.returned["a"]?.code == 4001)
    #expect(list.returned["a"]?.definition == definition(1))
    // Another gateway has repeated the removal, or this gateway repeats it.
    if way == .notified {
      #expect(list.notified(removal(10, "a", 1).span).isEmpty)
    } else {
      #expect(list.adopt(removalOf: "a", definition(1), code: 4001, at: Array("f0 10".utf8)).isEmpty)
    }
    #expect(list.returned.isEmpty)
    // Another failover follows.
    list.failed()
    _ = list.takePage()
    list.began(at: Array("f0 9".utf8))
    #expect(list.add(page(("a", 1), ("b", 2)), next: end, now: .zero).changes.isEmpty)
    #expect(list.returned.count == 1 && list.count == 1)
  }

  @Test(arguments: Way.allCases) private func aRemovedSessionThatReturnsDoesNotEndItsSuccessor(_ way: Way) {
    var list = complete("f0 9", ("a", 1))
    remove("a", 1, at: 10, from: &list, way)
    #expect(list.adopt("a", definition(2), at: Array("f0 11".utf8)) == [.defined(name: "a", definition(2))])
    list.disconnected()
    list.subscribed()
    _ = list.takePage()
    list.began(at: Array("f0 9".utf8))
    #expect(list.add(page(("a", 1)), next: end, now: .zero).changes.isEmpty)
    #expect(list.definition(of: "a") == definition(2))
    // The holder of the new session defines it again after the removal of the old session.
    #expect(list.missingDefinition(of: "a") == definition(2) && list.returned["a"]?.definition == definition(1))
    #expect(list.notified(removal(10, "a", 1).span).isEmpty && list.notified(notice(11, "a", 2).span).isEmpty)
    #expect(list.missing.isEmpty && list.returned.isEmpty && list.definition(of: "a") == definition(2))
  }

  @Test func aReplyOrANotificationRestoresNoRemovedSession() {
    var list = complete("f0 9", ("a", 1))
    remove("a", 1, at: 10, from: &list, .notified)
    #expect(list.hasRemoved(definition(1)) && !list.hasRemoved(definition(2)))
    // A holder that was unreachable has defined the session again, on a primary that lacks the removal.
    #expect(list.notified(notice(11, "a", 1).span).isEmpty && list.returned.count == 1)
    #expect(list.notified(removal(12, "a", 1).span).isEmpty && list.returned.isEmpty)
    #expect(list.adopt("a", definition(1), at: Array("f0 13".utf8)).isEmpty && list.returned.count == 1)
    list.disconnected()
    #expect(list.returned.isEmpty && list.count == 0)
  }

  /// The session is lost, and not removed, so its holder defines it again.
  @Test func aSessionThatExpiredMayReturn() {
    var list = complete("f0 9", ("a", 1))
    list.subscribed()
    _ = list.add([], next: end, now: .zero)
    #expect(list.expire(now: .zero + .seconds(6)).count == 1)
    list.subscribed()
    #expect(list.add(page(("a", 1)), next: end, now: .zero).changes == [.defined(name: "a", definition(1))])
    #expect(list.returned.isEmpty)
  }

  @Test func theLastRemovalsAreKept() {
    var removed = RemovedIncarnations()
    for incarnation in 0...UInt64(RemovedIncarnations.limit) {
      removed.insert(incarnation, code: 1000)
      removed.insert(incarnation, code: 4000)
    }
    #expect(removed.count == RemovedIncarnations.limit)
    #expect(removed.code(of: 0) == nil && removed.code(of: 1) == 1000)
    #expect(removed.code(of: UInt64(RemovedIncarnations.limit)) == 1000)
  }

  @Test func aLostNotificationIsDetected() {
    var list = complete("f0 9", ("a", 1))
    list.compare(Array("f0 10".utf8))
    // The change was only late.
    _ = list.notified(notice(10, "b", 2).span)
    list.compare(Array("f0 11".utf8))
    #expect(list.isComplete)
    list.compare(Array("f0 11".utf8))
    #expect(!list.isComplete && list.takePage() != nil)
    // All data in Redis was deleted.
    list = complete("f0 9", ("a", 1))
    list.compare(nil)
    list.compare(nil)
    #expect(!list.isComplete)
  }

  @Test func aFloodOfChangesRestartsTheReadingOfTheList() {
    var list = DefinitionList(patience: .seconds(6))
    list.subscribed()
    _ = list.takePage()
    for count in 1...5_000 { _ = list.notified(notice(count, "a", UInt64(count)).span) }
    // The page that was requested before does not belong to the next reading.
    #expect(list.takePage() == nil)
    #expect(list.add(page(("b", 1)), next: Array("7".utf8), now: .zero).changes.isEmpty)
    #expect(list.takePage()?.isFirst == true)
    list.began(at: Array("f0 5000".utf8))
    #expect(
      list.add(page(("a", 5_000)), next: end, now: .zero).changes == [.defined(name: "a", definition(5_000))])
    #expect(list.isComplete)
  }

  @Test func aLongListIsReadDespiteManyChanges() {
    var list = DefinitionList(patience: .seconds(6))
    list.subscribed()
    _ = list.takePage()
    let many = (0..<10_000).map { (name: Array("s\($0)".utf8), text: definition(1).text) }
    #expect(list.add(many, next: Array("7".utf8), now: .zero).changes.count == 10_000)
    _ = list.takePage()
    for count in 1...9_000 { _ = list.notified(notice(count, "a", UInt64(count)).span) }
    #expect(list.add(page(("a", 9_000)), next: end, now: .zero).changes.count >= 1)
    #expect(list.isComplete)
    #expect(list.definition(of: "a") == definition(9_000))
  }

  @Test(arguments: [
    "", "f0", "f0 1", "f0 1 a", "f0 1 a ", "f0 1 a x", "f0 x a -1000", " 1 a -1000", "f0 0 a -1000",
    "f0 1 a -1000", "f0 1 a -1000 x",
  ])
  func aMalformedNotificationIsIgnored(_ text: String) {
    var list = complete(nil, ("a", 1))
    #expect(list.notified(Array(text.utf8).span) == [] && list.isComplete && list.count == 1)
  }

  /// A copy becomes equal to the list, even if notifications are late, lost or repeated, and its pages show the list at
  /// different times.
  @Test(arguments: 0..<20) func aCopyBecomesTheList(_ seed: UInt64) {
    var generator = SeededGenerator(seed: seed)
    var model: [String: UInt64] = [:]
    var version = 0
    var sent: [[UInt8]] = []
    var list = DefinitionList(patience: .zero)
    var copy: [String: SessionDefinition] = [:]
    func note(_ changes: [DefinitionList.Change]) {
      for change in changes {
        switch change {
        case .defined(let name, let definition):
          #expect(copy.updateValue(definition, forKey: name) == nil)
        case .removed(let name, let definition, _): #expect(copy.removeValue(forKey: name) == definition)
        }
      }
    }
    list.subscribed()
    var rest: [String] = []
    for step in 0..<2_000 {
      let isLast = step >= 1_900
      switch Int.random(in: isLast ? 3..<10 : 0..<10, using: &generator) {
      case 0..<3:
        let name = "s\(Int.random(in: 0..<8, using: &generator))"
        version += 1
        if let incarnation = model.removeValue(forKey: name) {
          sent.append(removal(version, name, incarnation))
        } else {
          model[name] = UInt64(version)
          sent.append(notice(version, name, UInt64(version)))
        }
      case 3..<6:
        guard !sent.isEmpty else { continue }
        let first = sent.removeFirst()
        if isLast || Int.random(in: 0..<20, using: &generator) > 0 { note(list.notified(first.span)) }
      case 6:
        guard !isLast else { continue }
        if Bool.random(using: &generator) {
          list.failed()
        } else {
          list.disconnected()
          list.subscribed()
          sent = []
        }
      case 7: list.compare(version == 0 ? nil : Array("f0 \(version)".utf8))
      default:
        guard list.takePageForTest(&rest, model.keys.sorted(), version) != nil else { continue }
        let some = rest.prefix(3)
        rest = Array(rest.dropFirst(3))
        let entries = some.compactMap { name in
          model[name].map { (name: Array(name.utf8), text: definition($0).text) }
        }
        note(list.add(entries, next: rest.isEmpty ? end : Array("5".utf8), now: .zero).changes)
      }
      note(list.expire(now: .zero))
    }
    for first in sent { note(list.notified(first.span)) }
    for _ in 0..<3 {
      list.compare(version == 0 ? nil : Array("f0 \(version)".utf8))
      while list.takePageForTest(&rest, model.keys.sorted(), version) != nil {
        let entries = model.map { (name: Array($0.key.utf8), text: definition($0.value).text) }
        note(list.add(entries, next: end, now: .zero).changes)
      }
      note(list.expire(now: .zero))
    }
    #expect(copy == model.mapValues { definition($0) })
  }
}

extension DefinitionList {
  /// Expires sessions at a gateway that is the holder of no session.
  fileprivate mutating func expire(now: MonotonicTime) -> [Change] { expire(now: now) { _, _ in false } }

  /// Takes a page with the names that exist when it begins.
  fileprivate mutating func takePageForTest(_ rest: inout [String], _ names: [String], _ version: Int) -> Bool? {
    guard let page = takePage() else { return nil }
    if page.isFirst {
      rest = names
      began(at: version == 0 ? nil : Array("f0 \(version)".utf8))
    }
    return page.isFirst
  }
}
