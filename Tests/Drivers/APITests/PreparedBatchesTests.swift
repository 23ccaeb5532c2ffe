import ByteStreams
import HTTPServer
import Inbox
import Sessions
import Testing

@testable import API

/// The batches that several streams send after one push.
@Suite struct PreparedBatchesTests {
  private let inbox = ConcurrentInbox(epoch: Epoch(7), retention: Retention())

  private func push(_ text: String) {
    inbox.append(Array(text.utf8).span, kind: .text, time: 0, now: .zero)
  }

  private func key(after sequence: UInt64 = 0, _ format: StreamFormat = .events) -> PreparedBatches.Key {
    PreparedBatches.Key(
      inbox: inbox.epoch, start: ReadStart(Cursor(epoch: Epoch(7), sequence: sequence)),
      options: MessageStream.Options(format: format, filter: nil), revision: inbox.revision)
  }

  private func append(
    _ key: PreparedBatches.Key, to content: inout ResponseContent, in batches: inout PreparedBatches, reads: inout Int
  ) -> PreparedBatches.Batch {
    batches.append(key, to: &content) {
      reads += 1
      return inbox.read(after: key.start, limit: StreamLimits.batchMessages, maxBytes: StreamLimits.batchBytes)
    }
  }

  @Test func streamsInManyGroupsReadABatchTwiceAtMost() {
    for _ in 0..<20 { push("a") }
    var batches = PreparedBatches()
    var reads = 0
    let keys = (0..<8).flatMap { [key(after: $0), key(after: $0, .lines)] }
    var texts: [[UInt8]] = []
    for _ in 0..<5 {
      for (index, key) in keys.enumerated() {
        var content = ResponseContent()
        let batch = append(key, to: &content, in: &batches, reads: &reads)
        #expect(batch.messages == 20 - index / 2)
        texts.append(content.copyBytes())
      }
    }
    #expect(reads == 2 * keys.count)
    for index in texts.indices { #expect(texts[index] == texts[index % keys.count]) }
  }

  @Test(arguments: [StreamFormat.events, .lines], [" ", "\n", "\r\n "])
  func aLargePushIsNotCopiedForEachStream(_ format: StreamFormat, _ space: String) {
    let payload = "[" + String(repeating: "1,\(space)", count: 100_000) + "1]"
    push(payload)
    var batches = PreparedBatches()
    var reads = 0
    var texts: [[UInt8]] = []
    for _ in 0..<3 {
      var content = ResponseContent()
      let batch = append(key(after: 0, format), to: &content, in: &batches, reads: &reads)
      let (copied, size) = (content.text.count, content.count)
      #expect(batch.cursor.sequence == 1 && !batch.hasMore)
      #expect(copied < 1_000 && size > payload.utf8.count && size < payload.utf8.count + 300)
      texts.append(content.copyBytes())
    }
    #expect(texts[0] == texts[1] && texts[0] == texts[2])
    let flat = payload.utf8.map { $0 == UInt8(ascii: "\n") || $0 == UInt8(ascii: "\r") ? UInt8(ascii: " ") : $0 }
    let end = Array("}\n".utf8) + (format == .events ? [UInt8(ascii: "\n")] : [])
    #expect(texts[0].suffix(flat.count + end.count) == (flat + end)[...])
  }

  @Test func aBatchOfManyLineBreaksIsNotLargerThanAnother() {
    for number in 0..<200 { push("[\(String(repeating: "\n", count: 900))\(number)]") }
    var batches = PreparedBatches()
    var reads = 0
    var position: UInt64 = 0
    var delivered = 0
    while position < 200, reads < 400 {
      var content = ResponseContent()
      let batch = append(key(after: position), to: &content, in: &batches, reads: &reads)
      let size = content.count
      #expect(size <= 64 << 10 && batch.messages > 0)
      delivered += batch.messages
      position = batch.cursor.sequence
      #expect(batch.hasMore == (position < 200) && UInt64(delivered) == position)
    }
    #expect(delivered == 200)
  }
}
