import ByteStreams

/// The part of an output up to the end of its last large content. Texts and large contents alternate in it.
struct LargeOutput: ~Copyable {
  /// A text, and the rest of the large content behind it.
  private final class Piece {
    var text = ByteQueue()
    var content: (any LargeContent)?

    init(_ content: any LargeContent) { self.content = content }

    var count: Int { text.count + (content?.count ?? 0) }
  }

  /// Maximum bytes of a large content that are copied at once. They stay in the cache of the processor until the kernel
  /// copies them.
  static var sliceBytes: Int { 64 << 10 }

  private var pieces: [Piece] = []
  /// In bytes.
  private(set) var count = 0

  var isEmpty: Bool { pieces.isEmpty }

  /// Appends a large content. `text` is the output before it, which this output takes over.
  mutating func append(_ content: any LargeContent, after text: inout ByteQueue) {
    let piece = Piece(content)
    swap(&piece.text, &text)
    count += piece.count
    pieces.append(piece)
  }

  /// Passes the next bytes to `send`, which removes the bytes that it has sent. The output must not be empty.
  mutating func withNext<Result>(_ send: (inout ByteQueue) -> Result) -> Result {
    let piece = pieces[0]
    if piece.text.isEmpty { piece.content?.append(atMost: Self.sliceBytes, to: &piece.text) }
    let before = piece.text.count
    let result = send(&piece.text)
    count -= before - piece.text.count
    if piece.count == 0 { pieces.removeFirst() }
    return result
  }

  /// Removes the bytes of `range`. A large content is removed whole, or not at all. Returns the number of removed
  /// bytes.
  mutating func remove(_ range: Range<Int>) -> Int {
    var start = 0
    var removed = 0
    for piece in pieces {
      let textEnd = start + piece.text.count
      let end = start + piece.count
      let overlap = range.clamped(to: start..<textEnd)
      piece.text.remove(overlap.count, at: overlap.lowerBound - start)
      removed += overlap.count
      if let content = piece.content, range.contains(textEnd), content.count > 0 {
        precondition(range.upperBound >= end, "a large content was removed in part")
        removed += content.count
        piece.content = nil
      }
      start = end
    }
    pieces.removeAll { $0.count == 0 }
    count -= removed
    return removed
  }

  mutating func removeAll() {
    pieces = []
    count = 0
  }
}
