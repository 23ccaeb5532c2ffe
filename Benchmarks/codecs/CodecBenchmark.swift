import Glibc

/// `codec-benchmark CERTIFICATE KEY [--short]`: compares the codecs with the libraries they use, in one process and
/// without sockets.
///
/// The arguments are PEM files for the TLS server. Prints a line of JSON for each comparison: `ours` and `reference`
/// are the rates of the runs.
@main
enum CodecBenchmark {
  static func main() {
    let arguments = CommandLine.arguments
    guard arguments.count >= 3 else {
      print("usage: codec-benchmark CERTIFICATE KEY [--short]")
      exit(64)
    }
    let isShort = arguments.contains("--short")
    let comparison = Comparison(repetitions: isShort ? 5 : 11, nanoseconds: isShort ? 30_000_000 : 150_000_000)
    measureBytes(comparison)
    measureFrames(comparison)
    measureCompression(comparison)
    measureTLS(comparison, certificate: arguments[1], key: arguments[2])
  }
}

/// Messages like those of a data stream: JSON with constant names and changing numbers.
enum SampleMessages {
  static func make(_ count: Int, bytes: Int) -> [[UInt8]] {
    var generator = SplitMix(state: 1)
    return (0..<count).map { index in
      var text = "{\"sequence\":\(1_000_000 + index),\"items\":["
      while text.utf8.count + 70 < bytes {
        let number = generator.next()
        text +=
          "{\"symbol\":\"ABC\(number % 50)\",\"price\":\(number % 1000).\(number >> 32 % 100),\"size\":\(number % 9973)},"
      }
      text += "\""
      while text.utf8.count + 3 < bytes { text += String(UnicodeScalar(UInt8(97 + generator.next() % 26))) }
      return Array((text + "\"]}").utf8)
    }
  }
}

/// Generates the same messages in every run.
struct SplitMix: RandomNumberGenerator {
  var state: UInt64

  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var mixed = state
    mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
    return mixed ^ (mixed >> 31)
  }
}
