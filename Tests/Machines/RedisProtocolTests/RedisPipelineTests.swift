import ByteStreams
import RESPCodec
import Testing

@testable import RedisProtocol

@Suite struct RedisPipelineTests {
  @Test func completionsAreTakenInTheirOrder() {
    var pipeline = RedisPipeline()
    var called: [Int] = []
    for number in 0..<3 { pipeline.append(bytes: 10, now: .zero) { _ in called.append(number) } }
    #expect(pipeline.count == 3 && pipeline.bytes == 30)
    pipeline.takeFirst()?(.reply(.null))
    #expect(called == [0] && pipeline.bytes == 20)
    for completion in pipeline.takeAll() { completion(.lost(.closed)) }
    #expect(called == [0, 1, 2] && pipeline.bytes == 0)
    #expect(pipeline.takeAll().isEmpty)
    if pipeline.takeFirst() != nil { Issue.record("a command is completed twice") }
  }

  @Test func theOldestCommandDefinesTheDeadline() {
    var pipeline = RedisPipeline()
    #expect(pipeline.deadline == .distantFuture)
    pipeline.append(bytes: 1, now: .zero) { _ in }
    pipeline.append(bytes: 1, now: .zero + .seconds(1)) { _ in }
    #expect(pipeline.deadline == .zero + .seconds(2))
    _ = pipeline.takeFirst()
    #expect(pipeline.deadline == .zero + .seconds(3))
    _ = pipeline.takeFirst()
    #expect(pipeline.deadline == .distantFuture)
  }

  @Test func largeCommandsHaveMoreTime() {
    var pipeline = RedisPipeline()
    pipeline.append(bytes: 4 * RedisPipeline.minimumRate, now: .zero) { _ in }
    pipeline.append(bytes: 1, now: .zero + .seconds(1)) { _ in }
    #expect(pipeline.deadline == .zero + .seconds(6))
    _ = pipeline.takeFirst()
    #expect(pipeline.deadline == .zero + .seconds(7), "the command is sent after the other command")
  }

  @Test func aLargeReplyHasMoreTimeUnlessItStalls() {
    var pipeline = RedisPipeline()
    pipeline.append(bytes: 1, now: .zero) { _ in }
    pipeline.received(bytes: 3 * RedisPipeline.minimumRate, now: .zero)
    pipeline.append(bytes: 1, now: .zero + .seconds(4)) { _ in }
    #expect(pipeline.deadline == .zero + .seconds(5))
    pipeline.received(bytes: 1, now: .zero + .seconds(1))
    #expect(pipeline.deadline < .zero + .milliseconds(5001))
    _ = pipeline.takeFirst()
    #expect(
      pipeline.deadline < .zero + .milliseconds(6001), "replies that arrived before the command was sent do not count")
  }

  @Test func aSlowConnectionHasTheTimeoutAgainWhileACommandIsTaken() {
    var pipeline = RedisPipeline()
    let size = RedisPipeline.minimumRate
    pipeline.append(bytes: size, end: UInt64(size), now: .zero) { _ in }
    #expect(pipeline.deadline == .zero + .seconds(3))
    for second in 1...9 as ClosedRange<Int64> {
      pipeline.outputAcknowledged(through: UInt64(size) * UInt64(second) / 10, at: .zero + .seconds(3 * second))
      #expect(pipeline.deadline == .zero + .seconds(3 * second + 2))
    }
    pipeline.outputAcknowledged(through: UInt64(size), at: .zero + .seconds(30))
    // Output after the command does not extend the deadline.
    pipeline.outputAcknowledged(through: UInt64(size) * 2, at: .zero + .seconds(31))
    #expect(pipeline.deadline == .zero + .seconds(32))
  }

  @Test func aSlowConnectionHasTheTimeoutAgainWhileAReplyArrives() {
    var pipeline = RedisPipeline()
    pipeline.append(bytes: 1, end: 1, now: .zero) { _ in }
    for second in 1...9 as ClosedRange<Int64> {
      pipeline.received(bytes: 1_024, now: .zero + .seconds(second))
      #expect(pipeline.deadline == .zero + .seconds(max(2, second + 2)))
    }
  }

  @Test func commandsAndTheirBytesAreLimited() {
    var pipeline = RedisPipeline()
    for _ in 0..<RedisPipeline.commandLimit {
      #expect(pipeline.hasRoom(isShort: false))
      pipeline.append(bytes: 1, now: .zero) { _ in }
    }
    #expect(!pipeline.hasRoom(isShort: true))
    _ = pipeline.takeFirst()
    #expect(pipeline.hasRoom(isShort: false))
    // One command may exceed the limit, so that no command is too large to be sent.
    pipeline.append(bytes: RedisPipeline.byteLimit, now: .zero) { _ in }
    _ = pipeline.takeFirst()
    #expect(pipeline.count < RedisPipeline.commandLimit && !pipeline.hasRoom(isShort: false))
    // Without this room, the gateway could not verify that the command is stored.
    #expect(pipeline.hasRoom(isShort: true))
  }
}
