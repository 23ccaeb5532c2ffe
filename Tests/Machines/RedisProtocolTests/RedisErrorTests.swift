import Testing

@testable import RedisProtocol

@Suite struct RedisErrorTests {
  @Test(arguments: [
    ("READONLY You can't write against a read only replica.", RedisError.Kind.readOnly, true),
    ("NOSCRIPT No matching script. Please use EVAL.", .noScript, true),
    ("LOADING Redis is loading the dataset in memory", .loading, true),
    ("MASTERDOWN Link with MASTER is down", .masterDown, true),
    ("UNBLOCKED force unblock from blocking operation", .unblocked, true),
    ("NOAUTH Authentication required.", .noAuth, true),
    ("WRONGPASS invalid username-password pair", .wrongPassword, true),
    ("NOPERM this user has no permissions", .noPermission, false),
    ("OOM command not allowed when used memory > 'maxmemory'.", .outOfMemory, false),
    ("NOREPLICAS Not enough good replicas to write.", .noReplicas, false),
    ("BUSY Redis is busy running a script.", .busy, false),
    ("MISCONF Redis is configured to save RDB snapshots", .cannotPersist, false),
    ("ERR unknown command", .other, false),
    ("READONLYISH x", .other, false),
    ("", .other, false),
    // A reply of version 6.2.
    (
      "ERR Error running script (call to f_0f): @user_script:3: @user_script: 3: -OOM command not allowed when used memory > 'maxmemory'.",
      .outOfMemory, false
    ),
    (
      "ERR Error running script (call to f_0f): @user_script:3: @user_script: 3: -READONLY You can't write against a read only replica.",
      .readOnly, true
    ),
    (
      "ERR Error running script (call to f_0f): @user_script:3: user_script:3: attempt to index a nil value", .other,
      false
    ),
  ])
  func theFirstWordDecides(reply: String, kind: RedisError.Kind, endsConnection: Bool) {
    let error = RedisError(reply)
    #expect(error.kind == kind && error.endsConnection == endsConnection)
    #expect(error.description == reply)
  }

  /// Replies of Redis 7 and 6 if AUTH and EVALSHA were renamed. Log lines must contain neither passwords nor payloads.
  @Test(arguments: ["'user' 'secret' ", "`user`, `secret`, "])
  func theArgumentsOfAnUnknownCommandAreNotShown(arguments: String) {
    let error = RedisError("ERR unknown command 'AUTH', with args beginning with: " + arguments)
    #expect(error.kind == .other && error.description == "ERR unknown command 'AUTH'")
  }

  @Test func aTextIsShortAndPrintable() {
    let error = RedisError("ERR \u{1B}[31m" + String(repeating: "x", count: 1_000))
    #expect(error.text.hasPrefix("ERR \\x1b[31mx") && error.text.count < 300)
  }
}
