import ByteStreams
import Testing

@Suite struct BoxedTests {
  @Test func aChangeOfOneCopyChangesNoOther() {
    let first = Boxed([1, 2])
    var second = first
    #expect(second == first)
    second.value.append(3)
    #expect(first.value == [1, 2] && second.value == [1, 2, 3] && first != second)
    second.value.removeLast()
    #expect(first == second)
  }

  @Test func aBoxIsAReference() { #expect(MemoryLayout<Boxed<[String: [String]]>>.size == MemoryLayout<Int>.size) }
}
