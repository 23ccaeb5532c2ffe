import Testing

@testable import UpstreamProtocol

/// When a namespace that is joined has missed pushes.
@Suite struct NamespaceContinuityTests {
  @Test func aNamespaceThatWasInterruptedHasMissedPushesOnce() {
    var continuity = NamespaceContinuity(known: [])
    #expect(continuity.join("/", isRecovered: false) == false, "for the first time")
    #expect(continuity.join("/", isRecovered: false) == false, "on a successor, while it is joined")
    continuity.interrupt("/")
    continuity.interrupt("/")
    #expect(continuity.join("/", isRecovered: false) == true)
    #expect(continuity.join("/", isRecovered: false) == false)
  }

  @Test func aRecoveredNamespaceHasMissedNone() {
    var continuity = NamespaceContinuity(known: ["/"])
    continuity.interrupt("/")
    #expect(continuity.join("/", isRecovered: true) == false)
    #expect(continuity.join("/", isRecovered: false) == false)
  }

  @Test func nobodyMissesWhatWasNeverJoined() {
    var continuity = NamespaceContinuity(known: ["/"])
    continuity.interrupt("/admin")
    continuity.interrupt("/")
    #expect(continuity.join("/admin", isRecovered: false) == false)
    #expect(continuity.join("/", isRecovered: false) == true, "an earlier process had joined it")
  }
}
