import Glibc

/// Measures work in this process and a reference in turn, and prints a line of JSON for each comparison.
struct Comparison {
  /// Number of measurements of each side, and their minimum duration.
  let repetitions: Int
  let nanoseconds: UInt64

  /// `ours` and `reference` do the same work once and return its duration. `amount` is the work of one call, in `unit`.
  func run(
    _ key: String, unit: String, amount: Double, ours: () -> UInt64, reference: (() -> UInt64)? = nil
  ) {
    var ourRates: [Double] = []
    var referenceRates: [Double] = []
    _ = ours()
    _ = reference?()
    for _ in 0..<repetitions {
      ourRates.append(rate(amount, ours))
      if let reference { referenceRates.append(rate(amount, reference)) }
    }
    print("{\"key\":\"\(key)\",\"unit\":\"\(unit)\",\"ours\":\(ourRates),\"reference\":\(referenceRates)}")
  }

  private func rate(_ amount: Double, _ work: () -> UInt64) -> Double {
    var spent: UInt64 = 0
    var calls = 0.0
    repeat {
      spent += work()
      calls += 1
    } while spent < nanoseconds
    return amount * calls / (Double(spent) / 1e9)
  }
}

/// The processor time of `body` in nanoseconds, which does not include other processes.
@inline(never) func timed(_ body: () -> Void) -> UInt64 {
  let start = processorNanoseconds()
  body()
  return processorNanoseconds() - start
}

private func processorNanoseconds() -> UInt64 {
  var time = timespec()
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
  return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
}

/// Stores results, so that the compiler cannot remove the work.
final class Results {
  var sum = 0
}
