import Metrics
import Testing

@testable import Dialing

@Suite struct ReceivedContentsTests {
  @Test func oneClientCannotUseUpTheMemoryOfReceivedResponses() {
    let gauge = Gauge()
    let received = ReceivedContents(limit: 640, shownBy: gauge)
    func add(_ bytes: Int, by client: UInt64, isSmall: Bool = false) -> Bool {
      received.add(bytes, by: client, isSmall: isSmall)
    }
    #expect(add(640, by: 1) && !add(1, by: 1) && !add(1, by: 0))
    #expect(add(10, by: 2) && !add(1, by: 2) && add(10, by: 3))
    #expect(add(5, by: 1, isSmall: true) && gauge.current == 665)
    for (bytes, client) in [(645, 1), (10, 2), (10, 3)] as [(Int, UInt64)] { #expect(add(-bytes, by: client)) }
    #expect(gauge.current == 0 && add(640, by: 2))
  }
}
