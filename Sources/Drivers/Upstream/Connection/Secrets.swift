import Dialing
import Host
import UpstreamProtocol
import Reactor

/// Why a secret could not be read. It contains no part of the secret.
enum SecretError: Error, Equatable, CustomStringConvertible {
  case noVariable(String)
  case unreadable(String, RequiredFileError)
  case command(String, ChildProcessError)
  /// An earlier run of the command has not ended yet.
  case commandBusy(String, BlockingWorkError)
  case empty
  case tooLong

  var description: String {
    switch self {
    case .noVariable(let name): "the credential cannot be read: the environment has no variable '\(name)'"
    case .unreadable(let path, let error): "secret file '\(path)' cannot be read: \(error)"
    case .command(let name, let error): "the credential's command '\(name)' \(error)"
    case .commandBusy(let name, let error): "the credential's command '\(name)' is \(error)"
    case .empty: "the credential is empty"
    case .tooLong: "a secret has more than \(CredentialUse.maximumBytes) bytes"
    }
  }
}

/// Extracts a secret from a variable, a file or the output of a command.
enum Secret {
  /// A file or the output of a command, as a thread for blocking work has read it.
  typealias Output = Result<[UInt8], ChildProcessError>

  static func variable(_ name: String) throws(SecretError) -> [UInt8] {
    guard let value = SystemFile.environment()[name] else { throw .noVariable(name) }
    return Array(value.utf8)
  }

  static func content(of path: String, _ outcome: RequiredFile.Outcome) throws(SecretError) -> [UInt8] {
    let bytes: [UInt8]
    do throws(RequiredFileError) {
      bytes = try RequiredFile.content(outcome)
    } catch {
      throw .unreadable(path, error)
    }
    return try trimmed(bytes)
  }

  static func output(of command: String, _ outcome: BlockingWork<Output>.Outcome) throws(SecretError) -> [UInt8] {
    switch outcome {
    case .success(.success(let bytes)): return try trimmed(bytes)
    case .success(.failure(let error)): throw .command(command, error)
    case .failure(let error): throw .commandBusy(command, error)
    }
  }

  /// Removes the last line break, which is not part of a secret.
  private static func trimmed(_ bytes: [UInt8]) throws(SecretError) -> [UInt8] {
    guard bytes.count <= CredentialUse.maximumBytes else { throw .tooLong }
    var bytes = bytes
    if bytes.last == UInt8(ascii: "\n") { bytes.removeLast() }
    if bytes.last == UInt8(ascii: "\r") { bytes.removeLast() }
    return bytes
  }
}
