import ByteStreams
import CLibFuzzer
import FuzzTargets
import Glibc

/// `drawbridge-fuzz TARGET [libFuzzer's arguments]` runs libFuzzer on one target. Without arguments it lists the
/// targets and the maximum length of their inputs.
@main
enum FuzzDriver {
  /// A global, because libFuzzer's callback takes no context. Set once, before libFuzzer's only thread starts.
  private nonisolated(unsafe) static var target: FuzzTarget?

  /// libFuzzer restarts this program when it merges, and passes on the arguments after this one unchanged.
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
      fatalError("unknown target '\(name)': run without arguments for a list")
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
      // libFuzzer keeps the input of a run that ends the process.
      fatalError("\(target.name): \(error)")
    }
  }
}
