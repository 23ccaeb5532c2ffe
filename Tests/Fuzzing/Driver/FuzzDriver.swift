import ByteStreams
import CLibFuzzer
import FuzzTargets
import Glibc

/// `drawbridge-fuzz TARGET [libFuzzer's arguments]`: gives libFuzzer one target. Without a target: lists them with the
/// length of the longest input worth trying.
@main
enum FuzzDriver {
  /// Set before the one thread of libFuzzer starts, and never again: its callback takes no context.
  private nonisolated(unsafe) static var target: FuzzTarget?

  /// libFuzzer starts this program anew when it merges, with what stands behind this left as it is.
  private static let remaining = "-ignore_remaining_args=1"

  static func main() {
    var given = CommandLine.arguments
    guard given.count > 1 else {
      for target in FuzzTarget.all { print(target.name, target.longestInput) }
      return
    }
    if !given.contains(remaining) { given += [remaining, given.remove(at: 1)] }
    let name = given[given.count - 1]
    guard let found = FuzzTarget.all.first(where: { $0.name == name }) else {
      fatalError("there is no target '\(name)'; without arguments all are listed")
    }
    target = found
    var arguments = given.map { strdup($0) }
    var count = Int32(arguments.count)
    arguments.append(nil)
    let status = arguments.withUnsafeMutableBufferPointer { buffer in
      var start = buffer.baseAddress
      return LLVMFuzzerRunDriver(&count, &start) { data, size in
        FuzzDriver.run(UnsafeBufferPointer(start: data, count: size))
        return 0
      }
    }
    exit(status)
  }

  private static func run(_ input: UnsafeBufferPointer<UInt8>) {
    guard let target = target else { return }
    do throws(Finding) {
      try target.run(Span(_unsafeElements: input))
    } catch {
      // libFuzzer keeps the input of whatever ends the process.
      fatalError("\(target.name): \(error)")
    }
  }
}
