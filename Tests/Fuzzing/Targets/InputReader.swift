/// Reads the parameters of a run (pieces, limits) from the beginning of an input. The rest is passed to the parser
/// under test.
struct InputReader: ~Escapable {
  private let input: Span<UInt8>
  private var position = 0

  @_lifetime(copy input)
  init(_ input: Span<UInt8>) { self.input = input }

  /// The next byte, or zero at the end of the input.
  @_lifetime(self: copy self)
  mutating func byte() -> UInt8 {
    guard position < input.count else { return 0 }
    position += 1
    return input[position - 1]
  }

  @_lifetime(self: copy self)
  mutating func cuts() -> Cuts { Cuts(seed: byte()) }

  var rest: Span<UInt8> {
    @_lifetime(copy self)
    get { input.extracting(position..<input.count) }
  }
}

/// Splits bytes into pieces for a parser. One byte of the input is the seed, so libFuzzer can vary the other bytes
/// without changing the pieces.
struct Cuts {
  private let seed: UInt8

  /// 0: pieces of one byte; 255: one piece; other values: pieces of 1 to 2, 1 to 4, … 1 to 128 bytes.
  init(seed: UInt8) { self.seed = seed }

  static let none = Cuts(seed: 255)

  /// The pieces of `count` bytes, in order.
  func pieces(of count: Int) -> Pieces { Pieces(seed, count) }

  struct Pieces: Sequence, IteratorProtocol {
    private let count: Int
    private let mask: UInt32
    private var state: UInt32
    private var start = 0
    private let isWhole: Bool

    init(_ seed: UInt8, _ count: Int) {
      self.count = count
      isWhole = seed == 255
      mask = seed == 0 ? 0 : (2 << UInt32(seed % 7)) &- 1
      state = UInt32(seed)
    }

    mutating func next() -> Range<Int>? {
      guard start < count else { return nil }
      state = state &* 1_664_525 &+ 1_013_904_223
      let length = isWhole ? count : 1 + Int((state >> 16) & mask)
      let end = Swift.min(count, start + length)
      defer { start = end }
      return start..<end
    }
  }
}
