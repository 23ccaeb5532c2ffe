import ByteStreams
import Glibc
import WebSocketCodec

private let block = 64 * 1024
/// A block takes about a microsecond. With this many calls between two readings of the clock, the time of reading it is
/// negligible.
private let rounds = 256

/// Masking against `memcpy`, and UTF-8.
func measureBytes(_ comparison: Comparison) {
  let gigabytes = Double(block * rounds) / 1e9
  let payload = [UInt8](repeating: 0x61, count: block)
  let key = MaskingKey(bytes: 0x1234_5678)
  let target = UnsafeMutableRawPointer.allocate(byteCount: block, alignment: 64)
  defer { target.deallocate() }
  let output = OutputBox()
  let results = Results()

  comparison.run(
    "mask", unit: "GB/s", amount: gigabytes,
    ours: {
      timed {
        for _ in 0..<rounds {
          output.queue.removeAll()
          key.append(payload.span, to: &output.queue)
        }
        results.sum += output.queue.count
      }
    },
    reference: {
      payload.withUnsafeBytes { source in
        timed {
          for _ in 0..<rounds { results.sum += copy(source, to: target) }
        }
      }
    })
  measureUTF8(comparison, results)
}

/// UTF-8 validation of long and short texts, compared with the standard library.
private func measureUTF8(_ comparison: Comparison, _ results: Results) {
  let ascii = "{\"symbol\":\"ABC\",\"price\":123.45,\"size\":1000},"
  let other = "Grüße aus Zürich; привет, мир; γειά σου κόσμε; 你好，世界; こんにちは; 🌍🚀 "
  let texts = [
    ("utf8_ascii", ascii, block), ("utf8_other", other, block),
    ("utf8_latin", "Grüße aus Zürich; schöne Häuser, ", block),
    ("utf8_cyrillic", "привет, мир; как дела? ", block), ("utf8_cjk", "你好，世界。今天天气很好。", block),
    ("utf8_emoji", "🌍🚀😀🎉", block), ("utf8_ascii_100", ascii, 100), ("utf8_other_100", "привет, 世界; ", 100),
    ("utf8_ascii_20", "{\"price\":1}", 20),
  ]
  for (key, text, size) in texts {
    var bytes: [UInt8] = []
    while bytes.count + text.utf8.count <= size { bytes += Array(text.utf8) }
    let calls = rounds * block / size
    comparison.run(
      key, unit: "GB/s", amount: Double(bytes.count * calls) / 1e9,
      ours: {
        timed {
          for _ in 0..<calls where UTF8StreamValidator.isValid(bytes.span) { results.sum += 1 }
        }
      },
      reference: {
        timed {
          for _ in 0..<calls where UTF8StreamValidator.isValidByStandardLibrary(bytes.span) { results.sum += 1 }
        }
      })
  }
}

@inline(never)
private func copy(_ source: UnsafeRawBufferPointer, to target: UnsafeMutableRawPointer) -> Int {
  guard let base = source.baseAddress else { return 0 }
  memcpy(target, base, source.count)
  return Int(target.load(as: UInt8.self))
}

/// A queue shared by closures.
final class OutputBox {
  var queue = ByteQueue()
}
